package web

import (
	"net/http"

	"tranche/ledger"
	"tranche/web/view"
)

// bareShell is the frame of pages before sign-in and of refusals.
func (s *server) bareShell(r *http.Request, title string) view.Shell {
	shell := view.Shell{Title: title, Demo: s.cfg.Demo, AsOf: s.clock(s.store.Now())}
	if actor := actorOf(r); actor.Person != 0 {
		shell.Who = s.who(actor)
	}
	return shell
}

// shell is the frame of a page for a signed-in person. here is the lit item of
// the rail, answer the sentence that answers the page's question.
func (s *server) shell(r *http.Request, title, here, answer string) view.Shell {
	shell := s.bareShell(r, title)
	shell.Here, shell.Answer = here, answer
	shell.Flash = s.sessions.PopString(r.Context(), "flash")
	if waiting, err := s.store.WaitingReviews(r.Context(), actorOf(r)); err != nil {
		s.log.WarnContext(r.Context(), "requests that wait were not counted", "request", visitOf(r.Context()).id, "cause", err)
	} else if shell.Who != nil {
		shell.Who.Waiting = waiting
	}
	return shell
}

// who is the person as the rail shows them.
func (s *server) who(actor ledger.Actor) *view.Who {
	now := s.store.Now()
	may := func(v ledger.Verb) bool { return mayAnywhere(actor, v, now) }
	return &view.Who{
		Name: actor.Name, Role: roleText(actor),
		Admin: may(ledger.TreeWrite), Finance: may(ledger.ExportCharges),
		Audit:  may(ledger.AuditRead),
		People: may(ledger.PeopleGrant) || may(ledger.PeopleInvite) || may(ledger.PeopleJoinDecide),
	}
}

// roleText names the first role: "pi of /lab/vision".
func roleText(actor ledger.Actor) string {
	if len(actor.Grants) == 0 {
		return "no role yet"
	}
	g := actor.Grants[0]
	text := roleName(g.Role) + " of " + g.Path
	if len(actor.Grants) > 1 {
		text += " and more"
	}
	return text
}

// roleName is a role as people write it.
func roleName(role ledger.Role) string {
	if role == ledger.PI {
		return "PI"
	}
	return string(role)
}
