package web

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"

	"github.com/a-h/templ"
	"github.com/go-chi/chi/v5"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// peopleShown is one page of the list of roles.
const peopleShown = 100

// people lists who holds which role where.
func (s *server) people(w http.ResponseWriter, r *http.Request) error {
	page, err := s.peoplePage(r, 0, peopleForms{invite: newForm(), grant: newForm()})
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

// members lists who holds a role that applies at one group.
func (s *server) members(w http.ResponseWriter, r *http.Request) error {
	page, err := s.peoplePage(r, ledger.GroupID(pathID(r)), peopleForms{invite: newForm(), grant: newForm()})
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

// peopleForms are the two forms of the page; one of them may come back refused.
type peopleForms struct{ invite, grant view.Form }

func (s *server) peoplePage(r *http.Request, group ledger.GroupID, forms peopleForms) (templ.Component, error) {
	actor := actorOf(r)
	m := view.People{Form: forms.invite}
	title, crumbs := "People and roles", []view.Link(nil)
	if group != 0 {
		g, err := s.store.Group(r.Context(), group)
		if err != nil {
			return nil, err
		}
		m.Group, m.GroupID, title = g.Title, g.ID, "People of "+g.Title
		if crumbs, err = s.crumbs(r, g.Path); err != nil {
			return nil, err
		}
		crumbs = append(crumbs, view.Link{Text: g.Title, URL: view.GroupURL(g.ID)})
	}
	count, err := s.addRoles(r, &m)
	if err != nil {
		return nil, err
	}
	if err := s.addJoins(r, &m); err != nil {
		return nil, err
	}
	if err := s.addPeopleForms(r, &m, forms); err != nil {
		return nil, err
	}
	answer := plural(int64(count), "role") + " listed here; " + plural(int64(len(m.Asks)), "ask") + " to join waiting for you."
	shell := s.shell(r, title, "people", answer)
	shell.Crumbs = crumbs
	if len(actor.Grants) == 0 {
		shell.Actions = []view.Action{{Text: "Ask to join", URL: view.JoinURL, ID: "ask-join"}}
	}
	return view.PeoplePage(shell, m), nil
}

// addRoles fills one page of roles and says how many it holds.
func (s *server) addRoles(r *http.Request, m *view.People) (int, error) {
	actor, now := actorOf(r), s.store.Now()
	offset := max(0, formID(r, "from"))
	rows, err := s.readPeople(r, store.PeopleQuery{Group: m.GroupID, Offset: offset, Limit: peopleShown + 1})
	if err != nil {
		return 0, err
	}
	if len(rows) > peopleShown {
		rows = rows[:peopleShown]
		m.Pager.Older = r.URL.Path + "?from=" + strconv.FormatInt(offset+peopleShown, 10)
	}
	if offset > 0 {
		m.Pager.Newer = r.URL.Path + "?from=" + strconv.FormatInt(max(0, offset-peopleShown), 10)
	}
	for _, p := range rows {
		row := view.PersonRow{
			PersonID: p.Person, Name: p.Name, Role: string(p.Role), RoleText: roleName(p.Role), GroupID: p.Group, Group: p.Path,
			Until: s.until(p.Until), Source: sourceText(p.Source),
		}
		grants := actor.May(ledger.PeopleGrant, p.Path, now) == nil
		leads := actor.May(ledger.PeopleInvite, p.Path, now) == nil
		row.Revoke = (grants || (leads && p.Role == ledger.Researcher)) && p.Source != "identity"
		if grants || leads || p.Person == actor.Person {
			row.Email = p.Email
		}
		m.Rows = append(m.Rows, row)
	}
	m.Pager.Shown = plural(int64(len(rows)), "role")
	return len(rows), nil
}

func sourceText(source string) string {
	switch source {
	case "identity":
		return "identity provider"
	case "deputy":
		return "deputy"
	case "invite":
		return "invite"
	}
	return "granted"
}

// addJoins fills what waits for this person and the invites they may see.
func (s *server) addJoins(r *http.Request, m *view.People) error {
	asks, err := s.store.OpenJoins(r.Context(), actorOf(r))
	if err != nil {
		return err
	}
	for _, a := range asks {
		if m.GroupID == 0 || m.GroupID == a.Project {
			m.Asks = append(m.Asks, view.JoinRow{ID: a.ID, Name: a.Name, Project: a.Title, Message: a.Note, Asked: s.when(a.AskedAt)})
		}
	}
	invites, err := s.store.Invites(r.Context(), actorOf(r))
	if err != nil {
		return err
	}
	now := s.store.Now()
	for _, i := range invites {
		if m.GroupID != 0 && m.GroupID != i.Project {
			continue
		}
		row := view.InviteRow{Email: i.Email, Group: i.Title, Role: roleName(i.Role), Sent: s.when(i.InvitedAt), State: "open"}
		switch {
		case i.AcceptedAt != 0:
			row.State = "accepted"
		case now >= i.ExpiresAt:
			row.State = "expired"
		}
		m.Invites = append(m.Invites, row)
	}
	return nil
}

// addPeopleForms offers inviting to those who may, and granting to admins.
func (s *server) addPeopleForms(r *http.Request, m *view.People, forms peopleForms) error {
	actor, now := actorOf(r), s.store.Now()
	groups, err := s.readGroups(r)
	if err != nil {
		return err
	}
	var invite, grant []view.Option
	for _, g := range groups {
		o := view.Option{Value: idText(g.ID), Text: g.Title + " (" + g.Path + ")"}
		if g.Project && actor.May(ledger.PeopleInvite, g.Path, now) == nil {
			invite = append(invite, o)
		}
		if actor.May(ledger.PeopleGrant, g.Path, now) == nil {
			grant = append(grant, o)
		}
	}
	m.Groups = invite
	for _, role := range []ledger.Role{ledger.Researcher, ledger.PI} {
		if len(invite) > 0 {
			m.Roles = append(m.Roles, view.Option{Value: string(role), Text: roleName(role)})
		}
	}
	if len(grant) == 0 {
		return nil
	}
	m.Grant, m.GrantGroups = &forms.grant, grant
	for _, role := range ledger.Roles() {
		m.GrantRoles = append(m.GrantRoles, view.Option{Value: string(role), Text: roleName(role)})
	}
	persons, err := s.store.Persons(r.Context(), 1000)
	if err != nil {
		return err
	}
	for _, p := range persons {
		text := p.Name
		if p.Email != "" {
			text += " (" + p.Email + ")"
		}
		m.People = append(m.People, view.Option{Value: idText(p.ID), Text: text})
	}
	return nil
}

// grant gives a role; revoke takes one away.
func (s *server) grant(w http.ResponseWriter, r *http.Request) error {
	in, err := s.parseRole(r)
	if err == nil {
		err = s.store.GrantRole(r.Context(), s.command(r), in)
	}
	if err != nil {
		return s.again(w, r, err, func(f view.Form) (templ.Component, error) {
			return s.peoplePage(r, 0, peopleForms{invite: newForm(), grant: f})
		})
	}
	return s.done(w, r, view.PeopleURL, "Given. It applies from their next click on.")
}

func (s *server) revoke(w http.ResponseWriter, r *http.Request) error {
	in, err := s.parseRole(r)
	if err != nil {
		return err
	}
	if err := s.store.RevokeRole(r.Context(), s.command(r), in); err != nil {
		return err
	}
	return s.done(w, r, view.PeopleURL, "Taken away. It applies from their next click on.")
}

func (s *server) parseRole(r *http.Request) (store.RoleInput, error) {
	in := store.RoleInput{Person: ledger.PersonID(formID(r, "person")), Group: ledger.GroupID(formID(r, "group")), Role: ledger.Role(r.PostFormValue("role"))}
	if text := r.PostFormValue("until"); text != "" {
		until, refusal := ledger.LastDay("until", text, s.zone)
		if refusal != nil {
			return in, refusal
		}
		in.Until = until
	}
	return in, nil
}

// inviteURL is what an invite's letter leads to.
const inviteURL = "/invites/"

// invite asks somebody by mail to join a project.
func (s *server) invite(w http.ResponseWriter, r *http.Request) error {
	in := store.Invite{
		Project: ledger.GroupID(formID(r, "group")), Email: r.PostFormValue("email"), Role: ledger.Role(r.PostFormValue("role")),
		Secret: s.mint(s.command(r), "invite"),
	}
	if err := s.store.CreateInvite(r.Context(), s.command(r), in); err != nil {
		return s.again(w, r, err, func(f view.Form) (templ.Component, error) {
			return s.peoplePage(r, 0, peopleForms{invite: f, grant: newForm()})
		})
	}
	return s.done(w, r, view.MembersURL(in.Project), "Invited. The letter holds this link, good for 14 days: "+s.cfg.PublicURL+inviteURL+in.Secret)
}

// mint makes a secret that is the same when the same form comes twice from the
// same person, so that a double click shows the secret that counts.
func (s *server) mint(cmd store.Command, what string) string {
	mac := hmac.New(sha256.New, s.mintKey[:])
	mac.Write([]byte(what + "\n" + idText(cmd.Actor.Person) + "\n" + cmd.Key))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// showInvite offers an invite to whoever holds its link.
func (s *server) showInvite(w http.ResponseWriter, r *http.Request) error {
	secret := chi.URLParam(r, "secret")
	offer, err := s.store.InviteOffer(r.Context(), secret)
	if err != nil {
		return err
	}
	shell := s.shell(r, "Join "+offer.Title, "home", "You are invited to "+offer.Title+" as "+roleName(offer.Role)+".")
	shell.Actions = []view.Action{{Text: "Join " + offer.Title, URL: inviteURL + secret, Post: true, Fields: []view.Option{{Value: "key", Text: newForm().Key}}, ID: "accept-invite"}}
	return s.show(w, r, view.ErrorPage(shell, view.RefusalPage{Title: shell.Title, Detail: "Its path in the tree is " + offer.Path + "."}))
}

// acceptInvite joins the project.
func (s *server) acceptInvite(w http.ResponseWriter, r *http.Request) error {
	project, err := s.store.AcceptInvite(r.Context(), s.command(r), chi.URLParam(r, "secret"))
	if err != nil {
		return err
	}
	return s.done(w, r, view.GroupURL(project), "Welcome. You belong to this project now.")
}

// join is for people without a project, and for those who want another.
func (s *server) join(w http.ResponseWriter, r *http.Request) error {
	form := newForm()
	if project := r.FormValue("project"); project != "" {
		form.Values["project"] = []string{project}
	}
	page, err := s.joinPage(r, form)
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

func (s *server) joinPage(r *http.Request, form view.Form) (templ.Component, error) {
	actor := actorOf(r)
	groups, err := s.readGroups(r)
	if err != nil {
		return nil, err
	}
	m := view.Join{Form: form}
	for _, g := range groups {
		mine := slices.ContainsFunc(actor.Grants, func(h ledger.Grant) bool { return h.Group == g.ID })
		if g.Project && !mine {
			m.Projects = append(m.Projects, view.Option{Value: idText(g.ID), Text: g.Title + " (" + g.Path + ")"})
		}
	}
	sent, err := s.readJoins(r)
	if err != nil {
		return nil, err
	}
	for _, j := range sent {
		state := map[string]string{"open": "waits for its PI", "denied": "declined"}[j.State]
		m.Sent = append(m.Sent, view.JoinAsk{Project: j.Title, Asked: s.when(j.AskedAt), State: cmp.Or(state, j.State)})
	}
	answer := "You may ask for a place in any project; its PI answers."
	if len(actor.Grants) == 0 {
		answer = "You belong to no project yet. Ask to join one, or propose a new one."
	}
	shell := s.shell(r, "Ask to join", "home", answer)
	shell.Actions = []view.Action{{Text: "Propose a new project", URL: view.NewRequestURL + "?project=new", ID: "propose"}}
	return view.JoinPage(shell, m), nil
}

// askToJoin sends the ask.
func (s *server) askToJoin(w http.ResponseWriter, r *http.Request) error {
	_, err := s.store.AskToJoin(r.Context(), s.command(r), ledger.GroupID(formID(r, "project")), r.PostFormValue("message"))
	if err != nil {
		return s.again(w, r, err, func(f view.Form) (templ.Component, error) { return s.joinPage(r, f) })
	}
	return s.done(w, r, view.JoinURL, "Asked. You get a mail when it is answered.")
}

// answerJoin lets somebody in or declines.
func (s *server) answerJoin(w http.ResponseWriter, r *http.Request) error {
	approve := r.PostFormValue("decision") == "approve"
	if err := s.store.DecideJoin(r.Context(), s.command(r), pathID(r), approve); err != nil {
		return err
	}
	flash := "Declined. They were told."
	if approve {
		flash = "Approved. They may submit jobs now."
	}
	return s.done(w, r, view.PeopleURL, flash)
}
