package scheduler

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"

	"tranche/ledger"
)

// Delta is what makes one flat snapshot of another: the small parts whole, of the
// lists what was added or changed and the places of what went. It is how cycle
// records stay small; it holds nothing that a snapshot does not.
type Delta struct {
	Cycle   int64               `json:"cycle"`
	Now     Instant             `json:"now"`
	Policy  *Policy             `json:"policy,omitempty"` // nil = as before
	Bucket  Bucket              `json:"bucket"`
	Tried   []ledger.JobID      `json:"tried,omitempty"`
	Quiet   bool                `json:"quiet,omitempty"`
	Pools   Edits[Pool]         `json:"pools,omitzero"`
	Groups  Edits[Group]        `json:"groups,omitzero"`
	Shares  Edits[Share]        `json:"shares,omitzero"`
	Usage   Edits[Usage]        `json:"usage,omitzero"`
	Members Edits[MemberUsage]  `json:"members,omitzero"`
	Funds   Edits[ledger.Funds] `json:"funds,omitzero"`
	Nodes   Edits[Node]         `json:"nodes,omitzero"`
	Slices  Edits[Slice]        `json:"slices,omitzero"`
	Mixes   Edits[Mix]          `json:"mixes,omitzero"`
	Live    Edits[Live]         `json:"live,omitzero"`
	Waiting Edits[Job]          `json:"waiting,omitzero"`
}

// Edits is what makes one sorted list of another: places of the old list that
// go, ascending, then items that come or replace one of the same key.
type Edits[T any] struct {
	Drop []int `json:"drop,omitempty"`
	Put  []T   `json:"put,omitempty"`
}

// IsZero says that the lists are alike.
func (e Edits[T]) IsZero() bool { return len(e.Drop) == 0 && len(e.Put) == 0 }

// orders are the lists' sort orders, as Snapshot documents them. Items that
// compare equal are the same thing at two times.
func byPool(a, b *Pool) int   { return cmp.Compare(a.ID, b.ID) }
func byGroup(a, b *Group) int { return cmp.Compare(a.ID, b.ID) }
func byShare(a, b *Share) int {
	return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Group, b.Group))
}

func byUsage(a, b *Usage) int {
	return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Project, b.Project))
}

func byMember(a, b *MemberUsage) int {
	return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Project, b.Project), cmp.Compare(a.Member, b.Member))
}

func byPurse(a, b *ledger.Funds) int {
	return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Project, b.Project))
}
func byNode(a, b *Node) int { return cmp.Compare(a.ID, b.ID) }
func byMix(a, b *Mix) int   { return cmp.Compare(a.Pool, b.Pool) }

func bySlice(a, b *Slice) int {
	return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.From, b.From), cmp.Compare(a.ID, b.ID))
}

func byQueue(a, b *Job) int {
	return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Project, b.Project),
		cmp.Compare(b.Contract.Urgency, a.Contract.Urgency), bySeq(a, b))
}

// Diff gives what makes to of from. Both must be flat and sorted as Snapshot
// says. Cost: O(items of both).
func Diff(from, to *Snapshot) Delta {
	d := Delta{Cycle: to.Cycle, Now: to.Now, Bucket: to.Bucket, Tried: to.Tried, Quiet: to.Quiet}
	if from.Policy != to.Policy {
		p := to.Policy
		d.Policy = &p
	}
	d.Pools = edits(from.Pools, to.Pools, byPool)
	d.Groups = edits(from.Groups, to.Groups, byGroup)
	d.Shares = edits(from.Shares, to.Shares, byShare)
	d.Usage = edits(from.Usage, to.Usage, byUsage)
	d.Members = edits(from.Members, to.Members, byMember)
	d.Funds = edits(from.Funds, to.Funds, byPurse)
	d.Nodes = edits(from.Nodes, to.Nodes, byNode)
	d.Slices = edits(from.Slices, to.Slices, bySlice)
	d.Mixes = edits(from.Mixes, to.Mixes, byMix)
	d.Live = edits(from.Live, to.Live, byAttempt)
	d.Waiting = edits(from.Waiting, to.Waiting, byQueue)
	return d
}

// Apply gives the snapshot that the delta was made to, from the one it was made
// from. It refuses a delta that does not fit.
func (d *Delta) Apply(from *Snapshot) (*Snapshot, error) {
	s := &Snapshot{Cycle: d.Cycle, Now: d.Now, Policy: from.Policy, Bucket: d.Bucket, Tried: d.Tried, Quiet: d.Quiet}
	if d.Policy != nil {
		s.Policy = *d.Policy
	}
	ok := put(&s.Pools, from.Pools, d.Pools, byPool) &&
		put(&s.Groups, from.Groups, d.Groups, byGroup) &&
		put(&s.Shares, from.Shares, d.Shares, byShare) &&
		put(&s.Usage, from.Usage, d.Usage, byUsage) &&
		put(&s.Members, from.Members, d.Members, byMember) &&
		put(&s.Funds, from.Funds, d.Funds, byPurse) &&
		put(&s.Nodes, from.Nodes, d.Nodes, byNode) &&
		put(&s.Slices, from.Slices, d.Slices, bySlice) &&
		put(&s.Mixes, from.Mixes, d.Mixes, byMix) &&
		put(&s.Live, from.Live, d.Live, byAttempt) &&
		put(&s.Waiting, from.Waiting, d.Waiting, byQueue)
	if !ok {
		return nil, fmt.Errorf("the delta to cycle %d was not made from cycle %d", d.Cycle, from.Cycle)
	}
	return s, nil
}

func edits[T any](from, to []T, order func(a, b *T) int) Edits[T] {
	var e Edits[T]
	i, k := 0, 0
	for i < len(from) || k < len(to) {
		c := 0
		switch {
		case i == len(from):
			c = 1
		case k == len(to):
			c = -1
		default:
			c = order(&from[i], &to[k])
		}
		switch {
		case c < 0:
			e.Drop = append(e.Drop, i)
			i++
		case c > 0:
			e.Put = append(e.Put, to[k])
			k++
		default:
			if !reflect.DeepEqual(from[i], to[k]) {
				e.Put = append(e.Put, to[k])
			}
			i, k = i+1, k+1
		}
	}
	return e
}

func put[T any](into *[]T, from []T, e Edits[T], order func(a, b *T) int) bool {
	out := make([]T, 0, len(from)+len(e.Put)-min(len(e.Drop), len(from)))
	drop, k := e.Drop, 0
	for i := range from {
		if len(drop) > 0 && drop[0] == i {
			drop = drop[1:]
			continue
		}
		for k < len(e.Put) && order(&e.Put[k], &from[i]) < 0 {
			out = append(out, e.Put[k])
			k++
		}
		if k < len(e.Put) && order(&e.Put[k], &from[i]) == 0 {
			out = append(out, e.Put[k])
			k++
			continue
		}
		out = append(out, from[i])
	}
	*into = append(out, e.Put[k:]...)
	if len(*into) == 0 {
		*into = nil
	}
	return len(drop) == 0
}

// Bytes is the plan's canonical JSON: what a replay must give again, byte for byte.
func (p *Plan) Bytes() []byte {
	text, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("a plan is plain data: %v", err))
	}
	return text
}
