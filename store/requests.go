package store

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// NewProject is a project that a request proposes; the award creates it.
type NewProject struct {
	Title      string   `json:"title"`
	Slug       string   `json:"slug"`
	CostCentre string   `json:"cost_centre,omitempty"`
	Members    []string `json:"members,omitempty"` // mail addresses, invited by the award
}

// RequestInput is a request as typed. Project is set, or Program and New.
type RequestInput struct {
	ID       ledger.RequestID // 0: a new one
	Version  int64            // the version that was read; 0 for a new one
	Project  ledger.GroupID
	Program  ledger.GroupID
	New      *NewProject
	Period   ledger.PeriodID
	Purpose  string
	Outcome  string
	Deadline ledger.Instant
	Lines    []ledger.RequestLine
	Submit   bool
}

// maxMembers bounds how many people one award invites.
const maxMembers = 100

// SaveRequest writes a request as a draft or submits it; one that was returned is
// changed in place. PIs ask for their projects; anybody may propose a new one.
func (s *Store) SaveRequest(ctx context.Context, cmd Command, in RequestInput) (ledger.RequestID, error) {
	if in.New != nil { // before the command's content is taken: the body may run twice
		p := *in.New
		p.Title = strings.TrimSpace(p.Title)
		p.Slug = Slug(p.Title)
		in.New = &p
	}
	return runCommand(ctx, s, "save request", cmd, in, func(tx *Tx) (ledger.RequestID, error) {
		typed, err := requestTyped(ctx, tx, cmd, in)
		if err != nil {
			return 0, err
		}
		if in.ID == 0 {
			return createRequest(ctx, tx, cmd, in, typed)
		}
		return in.ID, reviseRequest(ctx, tx, cmd, in, typed)
	})
}

// requestTyped completes what was typed with what the rules need to know.
func requestTyped(ctx context.Context, tx *Tx, cmd Command, in RequestInput) (ledger.RequestInput, error) {
	out := ledger.RequestInput{
		ID: in.ID, Project: in.Project, Author: cmd.Actor.Person, Purpose: in.Purpose, Outcome: in.Outcome,
		Deadline: in.Deadline, Lines: in.Lines, Submit: in.Submit, Now: tx.Now,
	}
	var subject string
	if in.New == nil {
		g, err := groupSeen(ctx, tx, cmd.Actor, in.Project)
		if err != nil {
			return out, err
		}
		if !g.Project {
			return out, refuse(ledger.Invalid, "request.project", "project", "Choose a project, or propose a new one.")
		}
		if r := cmd.Actor.May(ledger.RequestWrite, g.Path, tx.Now); r != nil {
			return out, r
		}
		out.Path, out.Program, subject = g.Path, g.Parent, g.Title
	} else {
		program, err := groupSeen(ctx, tx, cmd.Actor, in.Program)
		if err != nil {
			return out, err
		}
		if rs := checkNewProject(program, in.New); len(rs) > 0 {
			return out, rs
		}
		out.Path, out.Program, subject = program.Path+"/"+in.New.Slug, program.ID, in.New.Title
	}
	var err error
	if out.Period, err = periodByID(ctx, tx, in.Period); err != nil {
		return out, err
	}
	out.Title = clipRunes(subject+", "+out.Period.Name, 200)
	rows, err := tx.Query(ctx, `select pool_id from period_supply where period_id = $1 order by pool_id`, in.Period)
	if err != nil {
		return out, err
	}
	out.Pools, err = pgx.CollectRows(rows, pgx.RowTo[ledger.PoolID])
	return out, err
}

// checkNewProject checks a proposed project.
func checkNewProject(program Group, p *NewProject) ledger.Refusals {
	var rs ledger.Refusals
	if n := len([]rune(p.Title)); n < 1 || n > 200 {
		rs = append(rs, refuse(ledger.Invalid, "request.new_name", "new_name", "Name the new project in 1 to 200 characters."))
	} else if p.Slug == "" {
		rs = append(rs, refuse(ledger.Invalid, "request.new_name", "new_name", "Use at least one letter from a to z or digit in the name."))
	}
	if program.Project || program.ArchivedAt != 0 {
		rs = append(rs, refuse(ledger.Invalid, "request.new_program", "new_program", "Choose the program that the project belongs to."))
	}
	if len(p.Members) > maxMembers {
		rs = append(rs, refuse(ledger.Invalid, "request.new_members", "new_members", "An award invites at most 100 people; invite the others afterwards."))
	}
	for _, m := range p.Members {
		if !looksLikeMail(m) {
			rs = append(rs, refuse(ledger.Invalid, "request.new_members", "new_members", "“"+clipRunes(m, 60)+"” is not a mail address."))
			break
		}
	}
	return rs
}

// looksLikeMail tells a mail address from a slip; the invite's delivery is the real test.
func looksLikeMail(s string) bool {
	name, host, ok := strings.Cut(s, "@")
	return ok && name != "" && strings.Contains(strings.Trim(host, "."), ".") && !strings.ContainsAny(s, " \t\r\n,;<>") && len(s) <= 320
}

func createRequest(ctx context.Context, tx *Tx, cmd Command, in RequestInput, typed ledger.RequestInput) (ledger.RequestID, error) {
	req, rs := ledger.NewRequest(typed)
	if len(rs) > 0 {
		return 0, rs
	}
	proposed, err := jsonOrNull(in.New)
	if err != nil || in.New == nil {
		proposed = nil
	}
	err = tx.QueryRow(ctx, `insert into requests (project_id, program_id, period_id, proposed, author_id, title, purpose, outcome, deadline, state, version, created_at, changed_at, submitted_at)
		values (nullif($1::bigint, 0), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, case when $10 = 'submitted' then $12::timestamptz end) returning id`,
		req.Project, req.Program, req.Period, proposed, req.Author, req.Title, req.Purpose, req.Outcome, req.Deadline, string(req.State), req.Version, tx.Now).Scan(&req.ID)
	if err != nil {
		return 0, err
	}
	if err := writeLines(ctx, tx, req); err != nil {
		return 0, err
	}
	return req.ID, noteRequest(ctx, tx, cmd, requestStep{Request: req, Action: actionOf(in.Submit)})
}

func actionOf(submit bool) ledger.RequestAction {
	if submit {
		return ledger.Submit
	}
	return ledger.Edit
}

func reviseRequest(ctx context.Context, tx *Tx, cmd Command, in RequestInput, typed ledger.RequestInput) error {
	old, err := lockRequest(ctx, tx, in.ID)
	if err != nil {
		return err
	}
	if old.Author != cmd.Actor.Person {
		return refuse(ledger.Denied, "request.author", "", "Only its author changes a request.")
	}
	if old.Project != typed.Project || old.Program != typed.Program || old.Period != typed.Period.ID {
		return refuse(ledger.Invalid, "request.target", "project", "Project and period of a request stay; withdraw it and write a new one instead.")
	}
	next, rs := old.Revise(typed, in.Version)
	if len(rs) > 0 {
		return rs
	}
	if err := updateRequest(ctx, tx, next, ""); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `delete from request_lines where request_id = $1`, next.ID); err != nil {
		return err
	}
	if err := writeLines(ctx, tx, next); err != nil {
		return err
	}
	return noteRequest(ctx, tx, cmd, requestStep{Request: next, Before: old.State, Action: actionOf(in.Submit)})
}

// lockRequest reads a request as the rules see it and keeps others from deciding.
func lockRequest(ctx context.Context, tx *Tx, id ledger.RequestID) (ledger.Request, error) {
	if _, err := tx.Exec(ctx, `select from requests where id = $1 for update`, id); err != nil {
		return ledger.Request{}, err
	}
	return readRequest(ctx, tx, id)
}

func readRequest(ctx context.Context, tx *Tx, id ledger.RequestID) (ledger.Request, error) {
	r := ledger.Request{ID: id}
	err := tx.QueryRow(ctx, `select coalesce(r.project_id, 0), coalesce(g.path, p.path || '/' || (r.proposed->>'slug')), r.program_id, r.period_id,
			r.author_id, r.state, r.version, r.title, r.purpose, r.outcome, r.deadline
		from requests r join groups p on p.id = r.program_id left join groups g on g.id = r.project_id where r.id = $1`, id).
		Scan(&r.Project, &r.Path, &r.Program, &r.Period, &r.Author, &r.State, &r.Version, &r.Title, &r.Purpose, &r.Outcome, &r.Deadline)
	if noRow(err) {
		return r, refuse(ledger.Missing, "request.missing", "", "There is no such request.")
	}
	if err != nil {
		return r, err
	}
	rows, err := tx.Query(ctx, `select pool_id, asked, coalesce(awarded, 0) from request_lines where request_id = $1 order by pool_id`, id)
	if err != nil {
		return r, err
	}
	r.Lines, err = pgx.CollectRows(rows, pgx.RowToStructByPos[ledger.RequestLine])
	return r, err
}

func writeLines(ctx context.Context, tx *Tx, r ledger.Request) error {
	batch := &pgx.Batch{}
	for _, l := range r.Lines {
		batch.Queue(`insert into request_lines (request_id, pool_id, asked) values ($1, $2, $3)`, r.ID, l.Pool, int64(l.Asked))
	}
	return tx.SendBatch(ctx, batch).Close()
}

// updateRequest writes a request's new state. Instants of deciding belong to the
// states that end it.
func updateRequest(ctx context.Context, tx *Tx, r ledger.Request, reason string) error {
	_, err := tx.Exec(ctx, `update requests set state = $2::text, version = $3, title = $4, purpose = $5, outcome = $6, deadline = $7, changed_at = $8, reason = $9,
			project_id = nullif($10::bigint, 0), submitted_at = case when $2 = 'submitted' then $8::timestamptz else submitted_at end
		where id = $1`, r.ID, string(r.State), r.Version, r.Title, r.Purpose, r.Outcome, r.Deadline, tx.Now, reason, r.Project)
	return err
}

// requestStep is one step in a request's life.
type requestStep struct {
	Request ledger.Request
	Before  ledger.RequestState // "" for a new one
	Action  ledger.RequestAction
	Note    string
}

// noteRequest keeps the step in the request's history and in the audit, and
// tells whom it concerns.
func noteRequest(ctx context.Context, tx *Tx, cmd Command, step requestStep) error {
	r := step.Request
	lines, err := json.Marshal(r.Lines)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `insert into request_events (request_id, at, person_id, action, note, detail) values ($1, $2, $3, $4, $5, $6)`,
		r.ID, tx.Now, cmd.Actor.Person, string(step.Action), step.Note, lines)
	if err != nil {
		return err
	}
	err = audit(ctx, tx, cmd, act{
		Verb: "request." + string(step.Action), Subject: subjectOf("request", r.ID),
		Before: map[string]any{"state": step.Before}, After: map[string]any{"state": r.State, "version": r.Version, "lines": r.Lines},
	})
	if err != nil {
		return err
	}
	body := map[string]any{"request": r.ID, "title": r.Title, "state": r.State}
	switch step.Action {
	case ledger.Submit:
		return mailReviewers(ctx, tx, r, body)
	case ledger.Award, ledger.Deny, ledger.Return:
		return mail(ctx, tx, letter{Kind: "request." + string(step.Action), Person: r.Author, Subject: r.Title + ": " + string(r.State), Body: body})
	}
	return nil
}

// mailReviewers tells the managers of the nearest program that has one.
func mailReviewers(ctx context.Context, tx *Tx, r ledger.Request, body any) error {
	people, err := reviewers(ctx, tx, r)
	if err != nil {
		return err
	}
	for _, p := range people {
		if err := mail(ctx, tx, letter{Kind: "request.submitted", Person: p, Subject: r.Title + " waits for your review", Body: body}); err != nil {
			return err
		}
	}
	return nil
}

func reviewers(ctx context.Context, tx *Tx, r ledger.Request) ([]ledger.PersonID, error) {
	rows, err := tx.Query(ctx, `select distinct r.person_id from role_grants r join groups g on g.id = r.group_id
		where r.role in ('manager', 'admin') and r.revoked_at is null and (r.until is null or r.until > $2) and r.person_id <> $3
			and starts_with($1, g.path || '/') and length(g.path) = (
				select max(length(o.path)) from role_grants t join groups o on o.id = t.group_id
				where t.role in ('manager', 'admin') and t.revoked_at is null and (t.until is null or t.until > $2) and t.person_id <> $3 and starts_with($1, o.path || '/'))
		order by 1`, r.Path, tx.Now, r.Author)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[ledger.PersonID])
}

// WithdrawRequest takes a request back: its author may, and whoever may write
// requests for the project.
func (s *Store) WithdrawRequest(ctx context.Context, cmd Command, id ledger.RequestID, version int64) error {
	_, err := runCommand(ctx, s, "withdraw request", cmd, []int64{int64(id), version}, func(tx *Tx) (bool, error) {
		old, err := lockRequest(ctx, tx, id)
		if err != nil {
			return false, err
		}
		if old.Author != cmd.Actor.Person {
			if r := cmd.Actor.May(ledger.RequestWrite, old.Path, tx.Now); r != nil {
				return false, r
			}
		}
		next, refusal := old.Act(ledger.Withdraw, version)
		if refusal != nil {
			return false, refusal
		}
		if err := updateRequest(ctx, tx, next, ""); err != nil {
			return false, err
		}
		return true, noteRequest(ctx, tx, cmd, requestStep{Request: next, Before: old.State, Action: ledger.Withdraw})
	})
	return err
}

// ReviewCommand answers a request. First and Last narrow an award's lots inside
// the period; 0 leaves the period's own bounds.
type ReviewCommand struct {
	Request  ledger.RequestID
	Decision ledger.Decision
	First    ledger.Instant
	Last     ledger.Instant
}

// ReviewOutcome is what an answer led to.
type ReviewOutcome struct {
	State   ledger.RequestState
	Project ledger.GroupID
	Lots    []ledger.LotID
}

// ReviewRequest awards, denies or returns a request. An award checks version and
// pot, makes the proposed project, the lots and the entry, and tells the author:
// all in one transaction or nothing.
func (s *Store) ReviewRequest(ctx context.Context, cmd Command, in ReviewCommand) (ReviewOutcome, error) {
	return runCommand(ctx, s, "review request", cmd, in, func(tx *Tx) (ReviewOutcome, error) {
		old, err := lockRequest(ctx, tx, in.Request)
		if err != nil {
			return ReviewOutcome{}, err
		}
		facts, err := reviewFacts(ctx, tx, cmd, old, in)
		if err != nil {
			return ReviewOutcome{}, err
		}
		result, refusal := ledger.Review(facts)
		if refusal != nil {
			return ReviewOutcome{}, refusal
		}
		if err := narrowLots(result.Lots, in); err != nil {
			return ReviewOutcome{}, err
		}
		if err := writeAward(ctx, tx, cmd, result); err != nil {
			return ReviewOutcome{}, err
		}
		_, err = tx.Exec(ctx, `update requests set decided_at = $2, decided_by = $3 where id = $1`, old.ID, tx.Now, cmd.Actor.Person)
		if err != nil {
			return ReviewOutcome{}, err
		}
		out := ReviewOutcome{State: result.Request.State, Project: result.Request.Project}
		for _, lot := range result.Lots {
			out.Lots = append(out.Lots, lot.ID)
		}
		tx.Notify("tranche_cycle")
		return out, noteRequest(ctx, tx, cmd, requestStep{
			Request: result.Request, Before: old.State, Action: in.Decision.Action,
			Note: strings.TrimSpace(in.Decision.Reason),
		})
	})
}

// reviewFacts gathers what the review depends on. The project that an award
// creates is made here, so that the lots can name it.
func reviewFacts(ctx context.Context, tx *Tx, cmd Command, req ledger.Request, in ReviewCommand) (ledger.ReviewInput, error) {
	facts := ledger.ReviewInput{Request: req, Actor: cmd.Actor, Decision: in.Decision, Now: tx.Now}
	var err error
	if facts.Period, err = periodByID(ctx, tx, req.Period); err != nil {
		return facts, err
	}
	if in.Decision.Action != ledger.Award {
		return facts, nil
	}
	if facts.Pots, err = potFacts(ctx, tx, req); err != nil {
		return facts, err
	}
	for _, a := range in.Decision.Amounts {
		var id ledger.LotID
		if err := tx.QueryRow(ctx, `select nextval(pg_get_serial_sequence('lots', 'id'))`).Scan(&id); err != nil {
			return facts, err
		}
		facts.Lots = append(facts.Lots, ledger.NewLot{Pool: a.Pool, ID: id})
	}
	if req.Project == 0 && req.State == ledger.Submitted && cmd.Actor.May(ledger.RequestReview, req.Path, tx.Now) == nil {
		facts.Request.Project, err = createProposed(ctx, tx, cmd, req)
	}
	return facts, err
}

// potFacts reads and locks the pots that would pay.
func potFacts(ctx context.Context, tx *Tx, req ledger.Request) ([]ledger.PotFacts, error) {
	rows, err := tx.Query(ctx, `select a.group_id, g.path, a.pool_id, b.balance, b.floor from balances b join accounts a on a.id = b.account_id
		join groups g on g.id = a.group_id where a.kind = $1 and a.group_id = $2 and a.period_id = $3 order by b.account_id for update of b`,
		int16(ledger.Pot), req.Program, req.Period)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[ledger.PotFacts])
}

// createProposed makes the project a request proposes: the author leads it, the
// members are invited.
func createProposed(ctx context.Context, tx *Tx, cmd Command, req ledger.Request) (ledger.GroupID, error) {
	var text []byte
	if err := tx.QueryRow(ctx, `select proposed from requests where id = $1`, req.ID).Scan(&text); err != nil {
		return 0, err
	}
	var p NewProject
	if err := json.Unmarshal(text, &p); err != nil {
		return 0, err
	}
	program, err := groupByID(ctx, tx, req.Program)
	if err != nil {
		return 0, err
	}
	g, err := insertGroup(ctx, tx, program, GroupInput{Project: true, Title: p.Title, Slug: p.Slug, CostCentre: p.CostCentre})
	if err != nil {
		return 0, err
	}
	err = insertGrant(ctx, tx, RoleInput{Person: req.Author, Group: g.ID, Role: ledger.PI}, "manual", cmd.Actor.Person)
	if err != nil {
		return 0, err
	}
	for _, m := range p.Members {
		if err := insertInvite(ctx, tx, req.Author, g, Invite{Email: m, Role: ledger.Researcher, Secret: newSecret()}); err != nil {
			return 0, err
		}
	}
	return g.ID, audit(ctx, tx, cmd, act{
		Verb: "group.create", Subject: subjectOf("group", g.ID),
		After: map[string]any{"path": g.Path, "title": g.Title, "project": true, "request": req.ID},
	})
}

// narrowLots applies the dates a reviewer typed.
func narrowLots(lots []ledger.Lot, in ReviewCommand) error {
	for i := range lots {
		if in.First != 0 {
			lots[i].First = max(lots[i].First, in.First)
		}
		if in.Last != 0 {
			lots[i].Last = min(lots[i].Last, in.Last)
		}
		if lots[i].First >= lots[i].Last {
			return refuse(ledger.Invalid, "lot.order", "last", "These days leave the award no time inside the period. Choose a later last day.")
		}
	}
	return nil
}

// writeAward writes the request's new state with its lots and its entry.
func writeAward(ctx context.Context, tx *Tx, cmd Command, result ledger.ReviewResult) error {
	req := result.Request
	if err := updateRequest(ctx, tx, req, ""); err != nil {
		return err
	}
	for _, lot := range result.Lots {
		_, err := tx.Exec(ctx, `insert into lots (id, project_id, pool_id, period_id, program_id, first, last, amount, kind, request_id, created_at)
			overriding system value values ($1, $2, $3, $4, $5, $6, $7, $8, 'award', $9, $10)`,
			lot.ID, lot.Project, lot.Pool, lot.Period, req.Program, lot.First, lot.Last, int64(lot.Available), req.ID, tx.Now)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(req.Lines, func(l ledger.RequestLine) bool { return l.Pool == lot.Pool })
		_, err = tx.Exec(ctx, `update request_lines set awarded = $3 where request_id = $1 and pool_id = $2`, req.ID, lot.Pool, int64(req.Lines[i].Awarded))
		if err != nil {
			return err
		}
	}
	if len(result.Entry.Transfers) == 0 {
		return nil
	}
	_, err := post(ctx, tx, result.Entry)
	return err
}
