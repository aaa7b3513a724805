package store

import (
	"tranche/ledger"
	"tranche/scheduler"
)

// mostDaily bounds the attempts whose day is closed in one cycle.
const mostDaily = 200

// dailyPost closes a day in the books: in the first cycles of a new one, what
// runs is charged up to the day's end, so that long protected attempts do not
// keep whole days open. What a change of leader leaves out is charged when it
// settles.
type dailyPost struct {
	until ledger.Instant // the day's end; 0 = nothing to do
	jobs  []ledger.JobID
}

// begin looks whether a day has ended since the cycle before.
func (d *dailyPost) begin(r *reading) {
	if r.last == 0 || r.last >= r.today || d.until == r.today {
		return
	}
	*d = dailyPost{until: r.today}
	for i := range r.runs {
		if run := &r.runs[i]; run.Funded && run.Started != 0 && run.Started < r.today {
			d.jobs = append(d.jobs, run.Job)
		}
	}
}

// next gives the part that this cycle does.
func (d *dailyPost) next() dailyPost {
	return dailyPost{until: d.until, jobs: d.jobs[:min(len(d.jobs), mostDaily)]}
}

// done forgets the part that next gave.
func (d *dailyPost) done() { d.jobs = d.jobs[min(len(d.jobs), mostDaily):] }

// postDay charges what a job's attempt has proven up to the day's end.
func (c *carrying) postDay(job ledger.JobID) {
	l := c.lives[job]
	if l == nil || l.state.Job != scheduler.JobActive {
		return
	}
	for i := range l.parts {
		m := l.state.Run.Members[i]
		elapsed := min(l.parts[i].seenMs, c.daily.until.MillisSince(m.Claimed))
		if m.Claimed == 0 || m.Ended || elapsed <= m.ElapsedMs {
			continue
		}
		ev := scheduler.Event{Kind: scheduler.EvAccrued, At: c.plan.Now, Rank: m.Rank, ElapsedMs: elapsed, PostAll: true, HoldStepMs: c.policy.HoldStepMs}
		if _, refusal := l.advance(ev, "", nil); refusal != nil {
			c.drop(job, "day")
			return
		}
	}
}
