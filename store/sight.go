package store

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// SeesJob refuses a job that is not there and one that the reader may not know of
// in the same words.
func (s *Store) SeesJob(ctx context.Context, sight ledger.Sight, id ledger.JobID) error {
	return s.sees(ctx, sight, missingJob(id), `select g.path from jobs j join groups g on g.id = j.project_id where j.id = $1`, int64(id))
}

// SeesArray is SeesJob for an array.
func (s *Store) SeesArray(ctx context.Context, sight ledger.Sight, id ledger.ArrayID) error {
	return s.sees(ctx, sight, missingArray(id), `select g.path from job_arrays y join jobs j on j.id = y.first_job join groups g on g.id = j.project_id where y.id = $1`, int64(id))
}

// SeesGroup is SeesJob for a program or project.
func (s *Store) SeesGroup(ctx context.Context, sight ledger.Sight, id ledger.GroupID) error {
	return s.sees(ctx, sight, missingGroup(), `select path from groups where id = $1`, int64(id))
}

func (s *Store) sees(ctx context.Context, sight ledger.Sight, missing *ledger.Refusal, query string, id int64) error {
	if sight.All() {
		return nil
	}
	return s.readTx(ctx, "sight", func(tx *Tx) error {
		var path string
		err := tx.QueryRow(ctx, query, id).Scan(&path)
		if noRow(err) || err == nil && !sight.Sees(path) {
			return missing
		}
		return err
	})
}

// Paths says where groups, jobs and arrays are in the tree, also those that are
// archived.
type Paths struct {
	Groups map[ledger.GroupID]string
	Jobs   map[ledger.JobID]string
	Arrays map[ledger.ArrayID]string
}

// Paths reads the paths of every group and of some jobs and arrays.
func (s *Store) Paths(ctx context.Context, named Named) (Paths, error) {
	var p Paths
	err := s.readTx(ctx, "paths", func(tx *Tx) error {
		p = Paths{Groups: map[ledger.GroupID]string{}, Jobs: map[ledger.JobID]string{}, Arrays: map[ledger.ArrayID]string{}}
		if err := pathsInto(ctx, tx, p.Groups, `select id, path from groups`); err != nil {
			return err
		}
		if len(named.Jobs) > 0 {
			if err := pathsInto(ctx, tx, p.Jobs, `select j.id, g.path from jobs j join groups g on g.id = j.project_id where j.id = any($1)`, named.Jobs); err != nil {
				return err
			}
		}
		if len(named.Arrays) == 0 {
			return nil
		}
		return pathsInto(ctx, tx, p.Arrays, `select y.id, g.path from job_arrays y join jobs j on j.id = y.first_job join groups g on g.id = j.project_id where y.id = any($1)`, named.Arrays)
	})
	return p, err
}

func pathsInto[ID ~int64](ctx context.Context, tx *Tx, into map[ID]string, query string, args ...any) error {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	var id int64
	var path string
	_, err = pgx.ForEachRow(rows, []any{&id, &path}, func() error {
		into[ID(id)] = path
		return nil
	})
	return err
}

// sightOf is what a command's actor may see under the policy that holds.
func sightOf(ctx context.Context, tx *Tx, actor ledger.Actor) (ledger.Sight, error) {
	if sight := ledger.SightOf(actor, true, tx.Now); sight.All() {
		return sight, nil // whatever the policy says
	}
	policy, err := loadPolicy(ctx, tx)
	return ledger.SightOf(actor, policy.Closed(), tx.Now), err
}

// groupSeen is groupByID for a command that may name any group, by anybody: what
// the actor may not see is refused like what is not there.
func groupSeen(ctx context.Context, tx *Tx, actor ledger.Actor, id ledger.GroupID) (Group, error) {
	g, err := groupByID(ctx, tx, id)
	if err != nil {
		return g, err
	}
	sight, err := sightOf(ctx, tx, actor)
	if err == nil && !sight.Sees(g.Path) {
		return Group{}, missingGroup()
	}
	return g, err
}

// groupsSeen are the groups that a reader may see; never nil.
func groupsSeen(ctx context.Context, tx *Tx, sight ledger.Sight) ([]ledger.GroupID, error) {
	rows, err := tx.Query(ctx, `select id, path from groups order by id`)
	if err != nil {
		return nil, err
	}
	ids := []ledger.GroupID{}
	var id ledger.GroupID
	var path string
	_, err = pgx.ForEachRow(rows, []any{&id, &path}, func() error {
		if sight.Sees(path) {
			ids = append(ids, id)
		}
		return nil
	})
	return ids, err
}

// unseen finds the first of some dependencies that the reader may not know of.
func unseen(ctx context.Context, tx *Tx, sight ledger.Sight, deps []dependency) (*dependency, error) {
	if sight.All() {
		return nil, nil
	}
	for i := range deps {
		var path string
		err := tx.QueryRow(ctx, `select g.path from jobs j join groups g on g.id = j.project_id where j.id = $1 or j.array_id = $2 limit 1`, deps[i].job, deps[i].array).Scan(&path)
		if err != nil && !noRow(err) {
			return nil, err
		}
		if err == nil && !sight.Sees(path) {
			return &deps[i], nil
		}
	}
	return nil, nil
}

// JobsNamed are the jobs that an attempt's stop, warning and answer name.
func (a *AttemptLine) JobsNamed() []ledger.JobID {
	var ids []ledger.JobID
	if a.StopByJob != 0 {
		ids = append(ids, a.StopByJob)
	}
	if w := a.Warning(); w != nil && w.Rival != nil {
		ids = append(ids, w.Rival.Job)
	}
	if r := a.Answer(); r != nil {
		if r.Rival != nil {
			ids = append(ids, r.Rival.Job)
		}
		if r.Refused != nil {
			ids = append(ids, HolderNamed(r.Refused)...)
		}
	}
	return ids
}

// HideJobs replaces the numbers of jobs that the reader may not see.
func (a *AttemptLine) HideJobs(seen func(ledger.JobID) bool) {
	if a.StopByJob != 0 && !seen(a.StopByJob) {
		a.StopByJob = scheduler.HiddenJob
	}
	if w := a.Warning(); w != nil && w.Rival != nil && !seen(w.Rival.Job) {
		w.Rival.Job = scheduler.HiddenJob
		a.warning = plainJSON(w)
	}
	if r := a.Answer(); r != nil {
		if r.Rival != nil && !seen(r.Rival.Job) {
			r.Rival.Job = scheduler.HiddenJob
		}
		r.Refused = HideHolder(r.Refused, seen)
		a.renewAnswer = plainJSON(r)
	}
}

// Named are jobs and arrays that are spoken of by their numbers.
type Named struct {
	Jobs   []ledger.JobID
	Arrays []ledger.ArrayID
}

// Names adds whom a job's reason and what it waits for speak of.
func (j *JobLine) Names(n *Named) {
	if j.Reason != nil {
		n.Jobs = append(n.Jobs, HolderNamed(j.Reason)...)
	}
	for _, word := range strings.Split(j.After, ", ") {
		if d := afterWord(word); d.array != 0 {
			n.Arrays = append(n.Arrays, d.array)
		} else if d.job != 0 {
			n.Jobs = append(n.Jobs, d.job)
		}
	}
}

// HideNames replaces the numbers that the reader may not see.
func (j *JobLine) HideNames(job func(ledger.JobID) bool, array func(ledger.ArrayID) bool) {
	j.Reason = HideHolder(j.Reason, job)
	if j.After == "" {
		return
	}
	var words []string
	for _, word := range strings.Split(j.After, ", ") {
		switch d := afterWord(word); {
		case d.array != 0 && !array(d.array):
			word = "an array of " + ledger.Hidden
		case d.job != 0 && !job(d.job):
			word = scheduler.JobName(scheduler.HiddenJob)
		}
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	j.After = strings.Join(words, ", ")
	if j.Reason != nil && j.Reason.Code == scheduler.WhyDependency {
		j.Reason = &scheduler.Reason{Job: j.ID, Code: scheduler.WhyDependency, Facts: []scheduler.Fact{{Name: scheduler.FactAfter, Value: j.After}}}
	}
}

// afterWord reads one word of JobLine.After: what a dependency prints.
func afterWord(word string) dependency {
	kind, number, _ := strings.Cut(word, " ")
	n, err := strconv.ParseInt(strings.TrimPrefix(number, "A"), 10, 64)
	switch {
	case err != nil:
		return dependency{}
	case kind == "array":
		return dependency{array: ledger.ArrayID(n)}
	}
	return dependency{job: ledger.JobID(n)}
}

// HolderNamed gives the holder of a reserved start that a reason names, if any.
func HolderNamed(r *scheduler.Reason) []ledger.JobID {
	n, err := strconv.ParseInt(r.Fact(scheduler.FactHolder), 10, 64)
	if err != nil {
		return nil
	}
	return []ledger.JobID{ledger.JobID(n)}
}

// HideHolder gives a reason without the number of a holder that the reader may not see.
func HideHolder(r *scheduler.Reason, seen func(ledger.JobID) bool) *scheduler.Reason {
	if r == nil {
		return nil
	}
	named := HolderNamed(r)
	if len(named) == 0 || seen(named[0]) {
		return r
	}
	hidden := *r
	hidden.Facts = append([]scheduler.Fact(nil), r.Facts...)
	for i := range hidden.Facts {
		if hidden.Facts[i].Name == scheduler.FactHolder {
			hidden.Facts[i].Value = strconv.FormatInt(int64(scheduler.HiddenJob), 10)
		}
	}
	return &hidden
}

// plainJSON writes what was read from JSON; it cannot fail.
func plainJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return text
}
