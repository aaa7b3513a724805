package placing

import (
	"cmp"
	"slices"
	"strings"
)

// Kind is a typical ask and how often it comes.
type Kind struct {
	Ask
	Weight int64 // count of jobs seen; its probability is Weight of the mix's Total
}

// Mix is what jobs are expected, most frequent first.
type Mix struct {
	Kinds []Kind
	Total int64
}

// NewMix counts equal asks. Its order depends on the asks alone, not on theirs.
func NewMix(asks []Ask) Mix {
	sorted := slices.Clone(asks)
	slices.SortFunc(sorted, compareAsks)
	m := Mix{Total: int64(len(asks))}
	for i := range sorted {
		if i > 0 && compareAsks(sorted[i-1], sorted[i]) == 0 {
			m.Kinds[len(m.Kinds)-1].Weight++
			continue
		}
		m.Kinds = append(m.Kinds, Kind{Ask: sorted[i], Weight: 1})
	}
	slices.SortStableFunc(m.Kinds, func(a, b Kind) int { return cmp.Compare(b.Weight, a.Weight) })
	return m
}

// MixOf merges equal kinds and orders them like NewMix; the second list has each
// kind's weight.
func MixOf(kinds []Kind) (Mix, []int64) {
	sorted := slices.Clone(kinds)
	slices.SortStableFunc(sorted, func(a, b Kind) int { return compareAsks(a.Ask, b.Ask) })
	var m Mix
	for _, k := range sorted {
		m.Total += k.Weight
		if n := len(m.Kinds); n > 0 && compareAsks(m.Kinds[n-1].Ask, k.Ask) == 0 {
			m.Kinds[n-1].Weight += k.Weight
			continue
		}
		m.Kinds = append(m.Kinds, k)
	}
	slices.SortStableFunc(m.Kinds, func(a, b Kind) int { return cmp.Compare(b.Weight, a.Weight) })
	weights := make([]int64, len(m.Kinds))
	for i := range m.Kinds {
		weights[i] = m.Kinds[i].Weight
	}
	return m, weights
}

// Find gives the position of the ask's kind, -1 if the mix does not know it.
func (m *Mix) Find(a *Ask) int {
	return slices.IndexFunc(m.Kinds, func(k Kind) bool { return compareAsks(k.Ask, *a) == 0 })
}

func compareAsks(a, b Ask) int {
	if c := cmp.Or(cmp.Compare(a.Count, b.Count), cmp.Compare(a.Share, b.Share), cmp.Compare(a.HBM, b.HBM)); c != 0 {
		return c
	}
	if c := slices.Compare(a.Demand[:], b.Demand[:]); c != 0 {
		return c
	}
	return strings.Compare(strings.Join(a.Models, "|"), strings.Join(b.Models, "|"))
}

// gpu is the compute that all jobs of the mix ask for together, 1/1000 GPU.
func (m *Mix) gpu() int64 {
	var sum int64
	for i := range m.Kinds {
		sum += m.Kinds[i].Weight * m.Kinds[i].Demand[SM]
	}
	return sum
}

// typical is the mix of the most frequent kinds that together make up the given
// percentage, when memory and the other dimensions beside CPU, GPU and those named are
// ignored.
func (m *Mix) typical(percent int64, beside ...int) Mix {
	var flat []Kind
	for _, k := range m.Kinds {
		whole := k.Demand
		k.Demand = Vector{CPU: whole[CPU], SM: whole[SM]}
		for _, d := range beside {
			k.Demand[d] = whole[d]
		}
		k.HBM = 0
		flat = append(flat, k)
	}
	slices.SortStableFunc(flat, func(a, b Kind) int { return compareAsks(a.Ask, b.Ask) })
	var merged []Kind
	for _, k := range flat {
		if n := len(merged); n > 0 && compareAsks(merged[n-1].Ask, k.Ask) == 0 {
			merged[n-1].Weight += k.Weight
			continue
		}
		merged = append(merged, k)
	}
	slices.SortStableFunc(merged, func(a, b Kind) int { return cmp.Compare(b.Weight, a.Weight) })
	var out Mix
	for _, k := range merged {
		if out.Total*100 >= percent*m.Total {
			break
		}
		out.Kinds = append(out.Kinds, k)
		out.Total += k.Weight
	}
	return out
}
