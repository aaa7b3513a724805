package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// mostReasons bounds the reasons written in one cycle; the others follow in the
// next ones.
const mostReasons = 500

// reasonRefresh is after how many cycles a reason is written again although only
// its standings moved.
const reasonRefresh = 20

// toldReason is what the database last heard about a job.
type toldReason struct {
	sum   uint64 // of code, rank and facts
	cycle int64
}

// queueReasons writes the reasons that changed since they were last written,
// and gives what the database then knows.
func (w *World) queueReasons(batch *pgx.Batch, p *scheduler.Plan, dropped []scheduler.Reason) (map[ledger.JobID]toldReason, error) {
	told := make(map[ledger.JobID]toldReason, len(p.Reasons))
	// The bound must not leave the same jobs out every time: go on where it cut.
	first := 0
	if w.cut != 0 {
		first, _ = slices.BinarySearchFunc(p.Reasons, w.cut, func(r scheduler.Reason, id ledger.JobID) int { return cmp.Compare(r.Job, id) })
		w.cut = 0
	}
	var jobs []ledger.JobID
	var texts []string
	for _, list := range [3][]scheduler.Reason{dropped, p.Reasons[first:], p.Reasons[:first]} {
		for i := range list {
			r := &list[i]
			was, known := w.told[r.Job]
			is := toldReason{w.sumOf(r), p.Cycle}
			fresh := known && was.sum == is.sum && p.Cycle-was.cycle < reasonRefresh+int64(r.Job)%reasonRefresh
			full := len(jobs) >= mostReasons
			if full && !fresh && w.cut == 0 {
				w.cut = r.Job
			}
			if fresh || full {
				if known {
					told[r.Job] = was
				}
				continue
			}
			text, err := json.Marshal(r)
			if err != nil {
				return nil, fmt.Errorf("reason of job %d: %w", r.Job, err)
			}
			jobs, texts = append(jobs, r.Job), append(texts, string(text))
			told[r.Job] = is
		}
	}
	w.queueForgotten(batch, told)
	if len(jobs) > 0 {
		batch.Queue(`insert into job_reasons (job_id, reason, at)
			select distinct on (u.job) u.job, u.reason::jsonb, $3 from unnest($1::bigint[], $2::text[]) with ordinality u (job, reason, n)
			order by u.job, u.n
			on conflict (job_id) do update set reason = excluded.reason, at = excluded.at`, jobs, texts, p.Now)
	}
	return told, nil
}

// queueForgotten removes the reasons of jobs that no longer wait; a new leader
// does not know which those are and looks at all.
func (w *World) queueForgotten(batch *pgx.Batch, told map[ledger.JobID]toldReason) {
	if len(w.told) == 0 {
		batch.Queue(`delete from job_reasons r where not exists (select from jobs j where j.id = r.job_id and j.state = 'pending')`)
		return
	}
	var gone []ledger.JobID
	for job := range w.told {
		if _, waits := told[job]; !waits {
			gone = append(gone, job)
		}
	}
	if len(gone) > 0 {
		slices.Sort(gone)
		batch.Queue(`delete from job_reasons where job_id = any($1)`, gone)
	}
}

// sumOf tells reasons apart without their standings, which move with the clock.
func (w *World) sumOf(r *scheduler.Reason) uint64 {
	var h maphash.Hash
	h.SetSeed(w.seed)
	h.WriteString(r.Code)
	fmt.Fprint(&h, r.Rank)
	for _, f := range r.Facts {
		h.WriteString(f.Name)
		h.WriteString(f.Value)
	}
	return h.Sum64()
}

// queueReservedViews keeps what each pool's page says of its reserved start.
func queueReservedViews(batch *pgx.Batch, p *scheduler.Plan) error {
	pools, views := make([]ledger.PoolID, len(p.Reserved)), make([]string, len(p.Reserved))
	for i := range p.Reserved {
		text, err := json.Marshal(&p.Reserved[i])
		if err != nil {
			return fmt.Errorf("reserved start of pool %d: %w", p.Reserved[i].Pool, err)
		}
		pools[i], views[i] = p.Reserved[i].Pool, string(text)
	}
	batch.Queue(`delete from reserved_views where pool_id <> all($1)`, pools)
	if len(pools) > 0 {
		batch.Queue(`insert into reserved_views (pool_id, view, at) select u.pool, u.view::jsonb, $3 from unnest($1::bigint[], $2::text[]) u (pool, view)
			on conflict (pool_id) do update set view = excluded.view, at = excluded.at`, pools, views, p.Now)
	}
	return nil
}

// triedIDs are the large jobs that found no capacity, for the next snapshot.
func triedIDs(p *scheduler.Plan) []ledger.JobID {
	if p.Tried == nil {
		return []ledger.JobID{}
	}
	return p.Tried
}

// queueStandings keeps the numbers the queue was sorted by, for the pool page.
func queueStandings(batch *pgx.Batch, p *scheduler.Plan) {
	n := len(p.Standings)
	if n == 0 {
		return
	}
	pools, groups := make([]int64, n), make([]int64, n)
	usage, commitment, share := make([]int64, n), make([]int64, n), make([]int64, n)
	for i, s := range p.Standings {
		pools[i], groups[i] = int64(s.Pool), int64(s.Group)
		usage[i], commitment[i], share[i] = s.Usage, s.Commitment, s.MicroGPU
	}
	batch.Queue(`insert into standings (pool_id, group_id, usage, commitment, micro_gpu, at)
		select *, $6::timestamptz from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
		on conflict (pool_id, group_id) do update set usage = excluded.usage, commitment = excluded.commitment,
			micro_gpu = excluded.micro_gpu, at = excluded.at`, pools, groups, usage, commitment, share, p.Now)
}
