package web

import (
	"net/http"
	"slices"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// homeRows bounds each list of the home page.
const homeRows = 10

// home answers: what can I use now, what do my jobs do, what waits for me.
// People without a role are led to "ask to join".
func (s *server) home(w http.ResponseWriter, r *http.Request) error {
	actor := actorOf(r)
	if len(actor.Grants) == 0 {
		return s.done(w, r, view.JoinURL, "")
	}
	usable, err := s.store.UsableBy(r.Context(), s.myProjects(actor))
	if err != nil {
		return err
	}
	var m view.Home
	for i := range usable {
		m.Usable = append(m.Usable, s.usableRow(&usable[i]))
	}
	jobs, err := s.store.Jobs(r.Context(), store.JobQuery{Member: actor.Person, Limit: homeRows})
	if err != nil {
		return err
	}
	m.Jobs = s.jobRows(jobs.Jobs, jobs.Policy.LookbackMs)
	mine, err := s.store.Requests(r.Context(), actor, store.RequestQuery{Author: actor.Person, Limit: homeRows})
	if err != nil {
		return err
	}
	m.Mine = s.requestRows(actor, mine)
	submitted, err := s.store.Requests(r.Context(), actor, store.RequestQuery{State: ledger.Submitted, Limit: 200})
	if err != nil {
		return err
	}
	for _, row := range s.requestRows(actor, submitted) {
		if row.Mine && len(m.Reviews) < homeRows {
			m.Reviews = append(m.Reviews, row)
		}
	}
	shell := s.shell(r, "Home", "home", homeAnswer(actor, usable))
	shell.Refresh = view.HomeURL
	return s.show(w, r, view.HomePage(shell, m))
}

// myProjects are the groups where the actor may submit jobs; what is a program
// among them has no lots and falls out.
func (s *server) myProjects(actor ledger.Actor) []ledger.GroupID {
	ids := []ledger.GroupID{}
	for _, g := range actor.Grants {
		if actor.May(ledger.JobSubmit, g.Path, s.store.Now()) == nil && !slices.Contains(ids, g.Group) {
			ids = append(ids, g.Group)
		}
	}
	return ids
}

// homeAnswer is about the project and pool with the most to use.
func homeAnswer(actor ledger.Actor, usable []store.Usable) string {
	var best *store.Usable
	for i := range usable {
		if best == nil || usable[i].Amount > best.Amount {
			best = &usable[i]
		}
	}
	if best == nil || best.Amount == 0 {
		return "You have no GPU-hours to use now, " + actor.Name + "."
	}
	answer := "You can use " + best.Amount.Hours() + " GPU-h on " + best.PoolName + " for " + best.Title
	if best.LimitedBy != best.Path {
		return answer + "; " + best.LimitedBy + " is the limit."
	}
	return answer + "."
}
