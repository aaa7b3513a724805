package scheduler

import (
	"cmp"
	"slices"
	"strconv"

	"tranche/ledger"
)

// memberCaps are the caps of a pool's members on the charged GPUs they have at
// once, with what they have: funded attempts that run, start or are nominated, and
// this cycle's starts. nil where nobody has a cap.
type memberCaps struct {
	most  []int64 // by person, milli-GPUs; 0 = no cap
	inUse []int64
}

// capMembers looks the caps up, once per cycle.
func (pc *poolCycle) capMembers() {
	first, _ := slices.BinarySearchFunc(pc.s.Members, pc.pi.pool.ID, func(m MemberUsage, id ledger.PoolID) int { return cmp.Compare(m.Pool, id) })
	for i := first; i < len(pc.s.Members) && pc.s.Members[i].Pool == pc.pi.pool.ID; i++ {
		m := &pc.s.Members[i]
		if m.CapGPUs <= 0 {
			continue
		}
		if pc.caps == nil {
			n := len(pc.pi.people)
			pc.caps = &memberCaps{most: make([]int64, n), inUse: make([]int64, n)}
		}
		if id, ok := pc.pi.people[personKey{m.Project, m.Member}]; ok {
			pc.caps.most[id] = m.CapGPUs * 1000
		}
	}
	if pc.caps == nil {
		return
	}
	for i := range pc.pi.rows {
		if pc.marks[i].funded && !pc.marks[i].stopping {
			pc.caps.inUse[pc.pi.rows[i].person] += pc.pi.rows[i].milli
		}
	}
}

// overCap says that a member would have more charged GPUs at once than their cap.
// The holder of a reserved start was let in before.
func (pc *poolCycle) overCap(e *entry) *Reason {
	if pc.caps == nil || e.holder != nil {
		return nil
	}
	id := pc.pi.personOf(e.job.Project, e.job.Member)
	most := pc.caps.most[id]
	if most == 0 || pc.caps.inUse[id]+e.job.Rate.MilliGPU <= most {
		return nil
	}
	if pc.s.Quiet {
		return &Reason{Job: e.job.ID, Code: WhyMemberCap}
	}
	return pc.reason(e.job, WhyMemberCap,
		Fact{FactCap, strconv.FormatInt(most/1000, 10)}, Fact{FactInUse, milliGPUs(pc.caps.inUse[id])})
}

// countMember notes a funded start of this cycle.
func (pc *poolCycle) countMember(j *Job) {
	if pc.caps != nil {
		pc.caps.inUse[pc.pi.personOf(j.Project, j.Member)] += j.Rate.MilliGPU
	}
}

// milliGPUs writes thousandths of GPUs: "12", "0.5".
func milliGPUs(milli int64) string {
	text := strconv.FormatInt(milli/1000, 10)
	if rest := milli % 1000; rest != 0 {
		text += "." + strconv.FormatInt(1000+rest, 10)[1:]
	}
	return text
}
