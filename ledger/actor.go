package ledger

import (
	"slices"
	"strings"
)

// Role is what a person may do at a path of the tree and below it.
type Role string

// The roles. A person may hold several, at several paths.
const (
	Researcher Role = "researcher" // submits, books, sees
	PI         Role = "pi"         // requests, members, their shares and caps
	Manager    Role = "manager"    // splits the pot, reviews below
	Admin      Role = "admin"      // tree, pools, policy, root awards
	Finance    Role = "finance"    // prices, exports, close
	Operator   Role = "operator"   // nodes, stops a job
	Auditor    Role = "auditor"    // reads all
)

// Roles lists every role in the order pages show them.
func Roles() []Role {
	return []Role{Researcher, PI, Manager, Admin, Finance, Operator, Auditor}
}

// Grant gives a role at a path and below it, until an instant (0: no end).
type Grant struct {
	Role  Role
	Group GroupID
	Path  string
	Until Instant
}

// Actor is the person behind a command. With an API token its project, or the
// program it was made for, bounds the person's roles: outside TokenPath none counts.
type Actor struct {
	Person       PersonID
	Name         string
	Grants       []Grant
	Token        int64   // id of the API token, 0: a signed-in person
	TokenProject GroupID // 0: not a token
	TokenPath    string
}

// Verb is one thing that a person may or may not do.
type Verb string

// The verbs of the table below.
const (
	SeeOpen          Verb = "see.open"    // names, shares, usage, standings, queue, job shapes
	SeePrivate       Verb = "see.private" // commands, logs, environment, purpose, comments
	SeeMoney         Verb = "see.money"   // prices and costs
	JobSubmit        Verb = "job.submit"
	JobCancel        Verb = "job.cancel"
	JobPause         Verb = "job.pause"  // and resume
	JobStop          Verb = "job.stop"   // an operator's stop, credited
	JobUrgent        Verb = "job.urgent" // urgency above 5
	RequestWrite     Verb = "request.write"
	RequestReview    Verb = "request.review"
	SplitWrite       Verb = "split.write"
	TreeWrite        Verb = "tree.write"
	PoolWrite        Verb = "pool.write"
	PolicyWrite      Verb = "policy.write"
	PeriodWrite      Verb = "period.write"
	PeriodClose      Verb = "period.close"
	PeopleGrant      Verb = "people.grant"
	PeopleInvite     Verb = "people.invite"
	PeopleJoinDecide Verb = "people.join.decide"
	NodeWrite        Verb = "node.write"
	NodeEnrol        Verb = "node.enrol"
	ExportCharges    Verb = "export.charges"
	LedgerVerify     Verb = "ledger.verify"
	AuditRead        Verb = "audit.read"
	TokenWrite       Verb = "token.write"
	CycleRead        Verb = "cycle.read"
)

// everyone stands for every signed-in person, with or without a role.
const everyone Role = "everyone"

// permission is one row of the table: who may do a verb at a path to anything
// there, and who only to what is their own.
type permission struct {
	verb Verb
	any  []Role
	own  []Role
}

// permissions is the one table of who may do what. A role is held at a path and
// applies below it; no role includes another:
//   - An admin owns tree, pools, policy and root awards. So that a request whose
//     only reviewer above is the root can be answered, and the root's pot split,
//     admins have the managers' two verbs wherever they are admin. They neither
//     submit jobs nor write requests.
//   - A PI does all that a researcher does, for the whole project.
//   - Operators stop jobs and run nodes but read no commands or logs.
//   - Finance sees money and exports, and closes; auditors read all, write nothing.
//   - Whoever has a role may make themselves a token where they hold it: operators
//     drain nodes and admins turn the policy from scripts, too.
//
// Nobody reviews their own request: Review refuses that beside this table.
var permissions = []permission{
	{verb: SeeOpen, any: []Role{everyone}},
	{verb: SeePrivate, any: []Role{Researcher, PI, Manager, Admin, Auditor}},
	{verb: SeeMoney, any: []Role{PI, Manager, Admin, Finance, Auditor}},
	{verb: JobSubmit, any: []Role{Researcher, PI}},
	{verb: JobCancel, any: []Role{PI}, own: []Role{Researcher}},
	{verb: JobPause, own: []Role{Researcher, PI}},
	{verb: JobStop, any: []Role{Operator}},
	{verb: JobUrgent, any: []Role{PI}},
	{verb: RequestWrite, any: []Role{PI}},
	{verb: RequestReview, any: []Role{Manager, Admin}},
	{verb: SplitWrite, any: []Role{Manager, Admin}},
	{verb: TreeWrite, any: []Role{Admin}},
	{verb: PoolWrite, any: []Role{Admin}},
	{verb: PolicyWrite, any: []Role{Admin}},
	{verb: PeriodWrite, any: []Role{Admin}},
	{verb: PeriodClose, any: []Role{Finance}},
	{verb: PeopleGrant, any: []Role{Admin}},
	{verb: PeopleInvite, any: []Role{PI}},
	{verb: PeopleJoinDecide, any: []Role{PI, Manager}},
	{verb: NodeWrite, any: []Role{Operator}},
	{verb: NodeEnrol, any: []Role{Operator}},
	{verb: ExportCharges, any: []Role{PI, Manager, Admin, Finance, Auditor}},
	{verb: LedgerVerify, any: []Role{Admin, Finance, Auditor}},
	{verb: AuditRead, any: []Role{Admin, Auditor}},
	{verb: TokenWrite, any: []Role{PI}, own: []Role{Researcher, Manager, Admin, Finance, Operator, Auditor}},
	{verb: CycleRead, any: []Role{Manager, Admin, Operator, Auditor}},
}

// Verbs lists every verb, in the table's order.
func Verbs() []Verb {
	out := make([]Verb, len(permissions))
	for i, p := range permissions {
		out[i] = p.verb
	}
	return out
}

// May says whether the actor may do the verb, at now, to anything at the path: nil,
// or a refusal of kind Denied that names the roles which may.
func (a Actor) May(verb Verb, path string, now Instant) *Refusal {
	return a.MayOwn(verb, path, 0, now)
}

// MayOwn is May for a thing that belongs to a person, such as a job or a token:
// some roles may do to their own what they may not do to others'.
func (a Actor) MayOwn(verb Verb, path string, owner PersonID, now Instant) *Refusal {
	i := slices.IndexFunc(permissions, func(p permission) bool { return p.verb == verb })
	if i < 0 {
		return refuse(Denied, "actor.unknown_verb", "", "Nobody may do this.", "verb", string(verb))
	}
	row := permissions[i]
	if a.Person != 0 && slices.Contains(row.any, everyone) {
		return nil
	}
	if a.TokenProject != 0 && !Covers(a.TokenPath, path) {
		return refuse(Denied, "actor.token_project", "", "This token is for "+a.TokenPath+" only.", "verb", string(verb), "path", path)
	}
	mine := owner != 0 && owner == a.Person
	for _, g := range a.Grants {
		if (g.Until != 0 && now >= g.Until) || !Covers(g.Path, path) {
			continue
		}
		if slices.Contains(row.any, g.Role) || (mine && slices.Contains(row.own, g.Role)) {
			return nil
		}
	}
	return refuse(Denied, "actor.denied", "", row.sentence(path), "verb", string(verb), "path", path, "roles", joinRoles(slices.Concat(row.any, row.own)))
}

// sentence tells a person who may.
func (p permission) sentence(path string) string {
	at := " at " + path + " or above may do this"
	if len(p.any) == 0 {
		return "Only the owner, as " + joinRoles(p.own) + at + "."
	}
	if len(p.own) > 0 {
		return "Only " + joinRoles(p.any) + at + ", or the owner as " + joinRoles(p.own) + "."
	}
	return "Only " + joinRoles(p.any) + at + "."
}

func joinRoles(roles []Role) string {
	words := make([]string, len(roles))
	for i, r := range roles {
		words[i] = string(r)
	}
	return strings.Join(words, ", ")
}

// Covers says that path lies at or below base. "/" covers every path.
func Covers(base, path string) bool {
	base = strings.TrimSuffix(base, "/")
	return path == base || strings.HasPrefix(path, base+"/")
}

// Leads says whether the actor holds a PI's role exactly at the path: people do
// not decide about the budget of a project they lead.
func (a Actor) Leads(path string, now Instant) bool {
	return slices.ContainsFunc(a.Grants, func(g Grant) bool {
		return g.Role == PI && g.Path == path && (g.Until == 0 || now < g.Until)
	})
}
