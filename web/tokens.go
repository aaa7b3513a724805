package web

import (
	"net/http"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// tokens lists this person's API tokens.
func (s *server) tokens(w http.ResponseWriter, r *http.Request) error {
	page, err := s.tokensPage(r, newForm(), "")
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

// tokensPage draws the list and the form; secret is a token made just now.
func (s *server) tokensPage(r *http.Request, form view.Form, secret string) (templ.Component, error) {
	actor, now := actorOf(r), s.store.Now()
	m := view.Tokens{Form: form, Secret: secret}
	groups, err := s.readGroups(r)
	if err != nil {
		return nil, err
	}
	m.Groups = tokenGroups(actor, groups, now)
	list, err := s.readTokens(r)
	if err != nil {
		return nil, err
	}
	valid := 0
	for _, t := range list {
		row := view.TokenRow{ID: t.ID, Name: t.Name, Project: t.Title, Made: s.when(t.CreatedAt), Expires: s.when(t.ExpiresAt), Used: s.when(t.UsedAt), State: "valid", Key: newForm().Key}
		if t.Limit > 0 {
			row.Limit = hours(t.Limit)
		}
		switch {
		case t.RevokedAt != 0:
			row.State = "revoked"
		case now >= t.ExpiresAt:
			row.State = "expired"
		default:
			valid++
		}
		m.Rows = append(m.Rows, row)
	}
	return view.TokensPage(s.shell(r, "API tokens", "tokens", "You have "+plural(int64(valid), "valid token")+"."), m), nil
}

// tokenGroups offers what a token may be for: projects to work in, then programs
// where a role is held. The narrowest come first, being the better choice.
func tokenGroups(actor ledger.Actor, groups []store.Group, now ledger.Instant) []view.Option {
	var projects, programs []view.Option
	for _, g := range groups {
		held := slices.ContainsFunc(actor.Grants, func(at ledger.Grant) bool { return at.Path == g.Path })
		switch {
		case actor.MayOwn(ledger.TokenWrite, g.Path, actor.Person, now) != nil:
		case g.Project && (held || actor.May(ledger.JobSubmit, g.Path, now) == nil):
			projects = append(projects, view.Option{Value: idText(g.ID), Text: g.Title})
		case held:
			programs = append(programs, view.Option{Value: idText(g.ID), Text: g.Title + " and all below it"})
		}
	}
	return append(projects, programs...)
}

// createToken makes a token and shows its secret once, in the answer itself.
func (s *server) createToken(w http.ResponseWriter, r *http.Request) error {
	in := store.TokenInput{Project: ledger.GroupID(formID(r, "project")), Name: r.PostFormValue("name"), Days: formID(r, "days"), Secret: "trn_" + s.mint(s.command(r), "token")}
	err := error(nil)
	if text := strings.TrimSpace(r.PostFormValue("limit")); text != "" {
		var refusal *ledger.Refusal
		if in.Limit, refusal = ledger.ParseGPUHours("limit", text, 1); refusal != nil {
			err = refusal
		}
	}
	if err == nil {
		_, err = s.store.CreateToken(r.Context(), s.command(r), in)
	}
	if err != nil {
		return s.again(w, r, err, func(f view.Form) (templ.Component, error) { return s.tokensPage(r, f, "") })
	}
	page, err := s.tokensPage(r, newForm(), in.Secret)
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

// revokeToken ends a token at once.
func (s *server) revokeToken(w http.ResponseWriter, r *http.Request) error {
	if err := s.store.RevokeToken(r.Context(), s.command(r), pathID(r)); err != nil {
		return err
	}
	return s.done(w, r, view.TokensURL, "Revoked. It works no more.")
}
