package scheduler

import (
	"cmp"
	"slices"

	"tranche/ledger"
	"tranche/scheduler/placing"
)

// Mix is what a pool's jobs are like, learnt from its own submissions. A placer that
// knows it keeps what is left useful for the jobs to come.
type Mix struct {
	Pool    ledger.PoolID `json:"pool"`
	Version int64         `json:"version"` // grows with every change
	SpanMs  int64         `json:"span_ms"` // they came in over so long
	Kinds   []MixKind     `json:"kinds"`   // most frequent first
}

// MixKind is what one rank asks of its node, and how many asked for it.
type MixKind struct {
	Shape Shape `json:"shape"` // of one node
	Ranks int64 `json:"ranks"`
}

// LeastSpanMs is the shortest span a rate of arrivals is taken over: jobs that came in
// one minute do not say what an hour brings.
const LeastSpanMs = 60 * 60_000

// MostKinds bounds a mix: rarer kinds hardly weigh in it.
const MostKinds = 200

// Learn makes a pool's mix of the shapes that were submitted. Kinds are as jobs ask
// for them, most frequent first, at most MostKinds.
func Learn(pool ledger.PoolID, version, spanMs int64, shapes []MixKind) Mix {
	m := Mix{Pool: pool, Version: version, SpanMs: spanMs}
	at := map[Shape]int{}
	for _, k := range shapes {
		one, ranks := k.Shape, k.Ranks*max(1, k.Shape.Nodes)
		one.Nodes = 1
		one.HBMVar, one.StoVar, one.IOCVar = 0, 0, 0
		i, ok := at[one]
		if !ok {
			i = len(m.Kinds)
			at[one] = i
			m.Kinds = append(m.Kinds, MixKind{Shape: one})
		}
		m.Kinds[i].Ranks += ranks
	}
	slices.SortFunc(m.Kinds, func(a, b MixKind) int {
		return cmp.Or(cmp.Compare(b.Ranks, a.Ranks), a.Shape.compare(&b.Shape))
	})
	if len(m.Kinds) > MostKinds {
		m.Kinds = m.Kinds[:MostKinds]
	}
	return m
}

func (s *Shape) compare(o *Shape) int {
	a, b := s.amounts(), o.amounts()
	return cmp.Or(cmp.Compare(s.GPUs, o.GPUs), cmp.Compare(s.GPUMilli, o.GPUMilli), cmp.Compare(s.HBMMiB, o.HBMMiB), slices.Compare(a[:], b[:]))
}

// mixOf finds a pool's mix; an empty one where nothing is known.
func (s *Snapshot) mixOf(pool ledger.PoolID) *Mix {
	for i := range s.Mixes {
		if s.Mixes[i].Pool == pool {
			return &s.Mixes[i]
		}
	}
	return &Mix{Pool: pool}
}

// with is the mix as placers know it, with the ranks counted of each of its kinds.
// While little is known, jobs of 1, 2, 4, ... GPUs up to a whole node are as likely,
// each counted once: enough to keep whole nodes whole, and soon outweighed.
func (m *Mix) with(by *judgedBy) (placing.Mix, []int64) {
	var asks []placing.Kind
	add := func(sh Shape, ranks int64) {
		a := askOf(&sh, by.whole.HBMMiB)
		asks = append(asks, placing.Kind{Ask: a, Weight: ranks})
	}
	for _, k := range m.Kinds {
		add(k.Shape, k.Ranks)
	}
	gpus := int64(by.gpus)
	for g := int64(1); gpus > 0; g = min(2*g, gpus) {
		sh := Shape{Nodes: 1, GPUs: g, GPUMilli: 1000, CPUMilli: by.whole.CPUMilli * g / gpus, RAMMiB: by.whole.RAMMiB * g / gpus}
		add(sh, 1)
		if g == gpus {
			break
		}
	}
	return placing.MixOf(asks)
}
