package web

import (
	"net/http"

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
	projects, err := s.myProjects(r)
	if err != nil {
		return err
	}
	usable, err := s.store.UsableBy(r.Context(), projects)
	if err != nil {
		return err
	}
	var m view.Home
	for i := range usable {
		m.Usable = append(m.Usable, s.usableRow(&usable[i]))
	}
	jobs, err := s.readJobs(r, store.JobQuery{Member: actor.Person, Limit: homeRows})
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
	shell := s.shell(r, "Home", "home", homeAnswer(actor, usable, len(m.Reviews)))
	shell.Refresh = view.HomeURL
	return s.show(w, r, view.HomePage(shell, m))
}

// myProjects are the projects where the actor may submit jobs.
func (s *server) myProjects(r *http.Request) ([]ledger.GroupID, error) {
	groups, err := s.readGroups(r)
	if err != nil {
		return nil, err
	}
	ids := []ledger.GroupID{}
	for _, g := range groups {
		if g.Project && actorOf(r).May(ledger.JobSubmit, g.Path, s.store.Now()) == nil {
			ids = append(ids, g.ID)
		}
	}
	return ids, nil
}

// homeAnswer is about the project and pool with the most to use; for those who
// use nothing themselves, about what waits for them.
func homeAnswer(actor ledger.Actor, usable []store.Usable, reviews int) string {
	var best *store.Usable
	for i := range usable {
		if best == nil || usable[i].Amount > best.Amount {
			best = &usable[i]
		}
	}
	if best == nil && reviews > 0 {
		return counted(reviews, "request waits", "requests wait") + " for your answer."
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
