package scheduler

import "slices"

// rival is who could evict an attempt once it is past its protection: the first
// job, in the order of the tournament, of those that found no capacity in this
// cycle and would find it then; else the holder of the reserved start, which
// takes its nodes at its time. nil when nobody could.
//
// Each is tried as the cycle tries it, with the attempt among the unprotected, so
// that gangs, other victims it would need besides and the limits of the nodes count
// as they do. When the cycle's work is used up, the first whose standing would
// allow it is named untried: better a warning too many.
// Cost: one search per job whose standing allows it, each kind of a project once.
func (pc *poolCycle) rival(row int) *Rival {
	var found *Rival
	pc.asIfPast(row, func() {
		type tryKey struct{ group, kind int32 }
		tried := map[tryKey]bool{}
		for _, f := range pc.failed {
			key := tryKey{f.group, f.e.kind}
			if tried[key] || !pc.mayEvict(f, row) {
				continue
			}
			tried[key] = true
			if found = pc.tryFor(f, row); found != nil {
				return
			}
		}
	})
	if found == nil {
		found = pc.holderTakes(row)
	}
	return found
}

// mayEvict says whether V2 or V3 would let a job evict an attempt past its
// protection, by urgency or standing alone.
func (pc *poolCycle) mayEvict(f failedTry, row int) bool {
	r, j := &pc.pi.rows[row], f.e.job
	if r.group == f.group {
		return j.Contract.Urgency > r.live.Job.Contract.Urgency
	}
	mine, theirs := pc.standoff(f, row)
	return theirs.Compare(mine) < 0
}

// standoff gives both standings below the fork: the attempt's group without it,
// the job's with it and the margin.
func (pc *poolCycle) standoff(f failedTry, row int) (mine, theirs Standing) {
	fd, j := &pc.fields[0], f.e.job
	m, t, _ := pc.ix.t.fork(pc.pi.rows[row].group, f.group)
	mine, theirs = fd.standing(pc.pi.pool, m), fd.standing(pc.pi.pool, t)
	mine.Commitment -= pc.commitment(row)
	theirs.Commitment += pc.promise(j.Rate.MilliGPU, j.Contract.MinMs)
	return mine, theirs
}

// tryFor searches victims for a job and says whether the attempt is among them.
func (pc *poolCycle) tryFor(f failedTry, row int) *Rival {
	rule := V3
	if pc.pi.rows[row].group == f.group {
		rule = V2
	}
	mine, theirs := pc.standoff(f, row)
	out := &Rival{Job: f.e.job.ID, Project: f.e.job.Project, Rule: rule, Mine: mine, Theirs: theirs}
	if pc.plan.Steps >= pc.p.MaxSteps {
		return out
	}
	v, _ := pc.seek(f.e, f.group, f.e.job.Contract.MinMs)
	if v == nil {
		return nil
	}
	defer v.undo(pc)
	if !slices.Contains(v.rows, int32(row)) {
		return nil
	}
	out.Others = len(v.rows) - 1
	return out
}

// asIfPast does something while an attempt counts as past its protection and the
// bucket of evictions as full, and puts everything back.
func (pc *poolCycle) asIfPast(row int, do func()) {
	r := &pc.pi.rows[row]
	if r.group < 0 || pc.now >= r.commit {
		do()
		return
	}
	lo, g, bucket := pc.byGroup(), r.group, pc.plan.Bucket
	saved := *lo
	lo.least, lo.has, lo.urgency = slices.Clone(lo.least), slices.Clone(lo.has), slices.Clone(lo.urgency)
	lo.devices, lo.funded, lo.byRoom[1] = slices.Clone(lo.devices), slices.Clone(lo.funded), slices.Clone(lo.byRoom[1])

	urgency := r.live.Job.Contract.Urgency
	if lo.has[g] {
		urgency = min(urgency, lo.urgency[g])
	}
	lo.has[g], lo.urgency[g] = true, urgency
	lo.past = append(slices.Clip(lo.past), int32(row))
	lo.funded[g] = append(slices.Clip(lo.funded[g]), int32(row))
	lo.each(pc, int32(row), func(n int32, p *Placed) {
		lo.devices[n] += int64(len(p.Devices))
		lo.byRoom[1][n] = append(slices.Clip(lo.byRoom[1][n]), int32(row))
	})
	pc.noteLeast(g, pc.commitment(row))
	lo.version++
	pc.changed(r.live.Placed)
	pc.plan.Bucket.MilliTokens = max(bucket.MilliTokens, pc.p.EvictBurst*1000)

	do()

	version := lo.version + 1
	*lo, pc.plan.Bucket = saved, bucket
	lo.version = version
	pc.changed(r.live.Placed)
}

// holderTakes says whether the attempt has a node that is kept for the holder,
// which may take it under V4 at its time.
func (pc *poolCycle) holderTakes(row int) *Rival {
	l := pc.holder
	if l == nil || pc.served || !pc.p.HolderEvicts || pc.pi.pool.Frozen {
		return nil
	}
	for i := range pc.pi.rows[row].live.Placed {
		if slices.Contains(pc.promised.Nodes, pc.pi.rows[row].live.Placed[i].Node) {
			return &Rival{Job: l.Job.ID, Project: l.Job.Project, Rule: V4, At: pc.promised.At}
		}
	}
	return nil
}
