package placing

// Weights are what the terms of ragp-x count, in millionths.
type Weights struct {
	Future int64 // stranded GPUs that the placement adds
	Cosine int64 // cosine of demand and rest
	Even   int64 // growth of the rest's variance over the dimensions, times 4
	Price  int64 // scarce places taken away
	Left   int64 // mean rest
	// Relative: a copy of a rare job is worth, when scarce, not its GPUs but the
	// nodes over the copies that an empty cluster holds.
	Relative bool
}

// Saturating are the weights for a cluster that fills up, with the variance as
// geometric term; SaturatingCosine has the cosine instead.
func Saturating() Weights {
	return Weights{Future: Micro, Even: Micro, Price: 3 * Micro, Left: Micro / 20}
}

// SaturatingCosine has the cosine as geometric term.
func SaturatingCosine() Weights {
	return Weights{Future: Micro, Cosine: Micro / 2, Price: 3 * Micro, Left: Micro / 20}
}

// Churning are the weights for a cluster whose jobs come and go: rests need not stay
// useful for ever, and a scarce place counts by how few an empty cluster has.
func Churning() Weights {
	return Weights{Future: Micro / 10, Even: Micro, Price: Micro, Left: Micro / 20, Relative: true}
}

// RagpX scores what the placement leaves behind, all terms in GPUs:
//
//	future·(V(n) - V(n+j)) + cosine·cos(demand, rest) - even·4·(Var after - Var before)
//	- price·sum over rare jobs m of worth(m)·(K_m(n) - K_m(n+j)) - left·mean rest after
//
// V is the expected stranded GPU (see futures), K_m the copies of a rare job that
// fit (see prices). Ties go to the smaller rest, then by the node's state.
type RagpX struct {
	weights Weights
	seed    uint64
	futures *futures
	prices  *prices
	blind   [Dims]bool
	next    Node
}

// NewRagpX judges by a mix, which may be empty when nothing is known. The seed
// fixes the random futures.
func NewRagpX(m Mix, w Weights, seed uint64) *RagpX {
	return &RagpX{weights: w, seed: seed, futures: newFutures(m, seed), prices: newPrices(m, 0, w.Relative)}
}

// Learn replaces the mix; scores remembered from before are void, and prices are
// nil until the next Refresh.
func (r *RagpX) Learn(m Mix) {
	r.futures, r.prices = newFutures(m, r.seed), newPrices(m, r.prices.epoch+1, r.weights.Relative)
}

// Refresh sets the scarcity prices; expected is the GPU that jobs to come will
// ask for, in 1/1000 GPU.
func (r *RagpX) Refresh(nodes []Node, expected int64) { r.prices.refresh(nodes, expected) }

// Places adds to room, by kind of the mix, how many more of each rare kind fit on
// the node.
func (r *RagpX) Places(n *Node, room []int64) {
	for i, kind := range r.prices.on(n.Model) {
		room[kind] += r.places(n)[i]
	}
}

// Worth tells a placer with relative prices what a copy of each kind is worth when
// scarce: so many nodes over the copies that fit on them when they are empty (see
// Places). It holds from the next Price on.
func (r *RagpX) Worth(nodes int, empty []int64) {
	for kind := range empty {
		r.prices.unit[kind] = int64(nodes) * Micro / max(1, empty[kind])
	}
}

// Price sets the scarcity prices from the places there are (see Places) and the
// copies expected, in millionths, both by kind of the mix.
func (r *RagpX) Price(room, due []int64) { r.prices.price(room, due) }

// Epoch changes with the prices.
func (r *RagpX) Epoch() uint32 { return r.prices.epoch }

// Renew prices a score anew.
func (r *RagpX) Renew(s *Score) {
	price := &s.Terms[2]
	cost := -r.prices.of(s.losses)
	s.Total += weigh(price.Weight, cost) - weigh(price.Weight, price.Value)
	price.Value = cost
}

// Score judges the node with the job on it.
func (r *RagpX) Score(n *Node, a *Ask) Score { return r.On(n, a, n.tight(a)) }

// On judges the node with the job on the devices given.
func (r *RagpX) On(n *Node, a *Ask, devices []int) Score {
	s := Score{Devices: devices, Terms: make([]Term, 0, MaxTerms)}
	n.after(&r.next, a, s.Devices)
	now := r.outlook(n)
	s.losses = r.prices.losses(r.places(n), &r.next)
	var stranded int64
	if r.weights.Future != 0 {
		stranded = (now.stranded - r.futures.stranded(&r.next)) * 1000 / sequences
	}
	shape := Term{TermCosine, r.weights.Cosine, 0}
	if r.weights.Even != 0 {
		shape = Term{TermEvenness, r.weights.Even, 4 * (now.uneven - unevenness(&r.next))}
	} else {
		shape.Value = cosine(n, a, &r.blind)
	}
	left := residual(&r.next)
	s.Terms = append(s.Terms,
		Term{TermFuture, r.weights.Future, stranded},
		shape,
		Term{TermScarcity, r.weights.Price, -r.prices.of(s.losses)},
		Term{TermTightness, r.weights.Left, -left})
	for _, t := range s.Terms {
		s.Total += weigh(t.Weight, t.Value)
	}
	s.Tie = tieOf(&r.next)
	return s
}

// outlook is what holds for a node whatever comes next; each part is worked out when
// it is first asked for.
type outlook struct {
	by       *futures // who worked it out
	judged   bool     // stranded and uneven are known
	stranded int64
	uneven   int64
	counted  bool // places are known
	places   []int64
}

// outlook works a node out once; the node keeps it until something is placed there.
func (r *RagpX) outlook(n *Node) *outlook {
	o := r.known(n)
	if !o.judged {
		o.judged, o.uneven = true, unevenness(n)
		if r.weights.Future != 0 {
			o.stranded = r.futures.stranded(n)
		}
	}
	return o
}

// places counts the rare kinds' copies that fit on a node; see prices.places.
func (r *RagpX) places(n *Node) []int64 {
	o := r.known(n)
	if !o.counted {
		o.counted, o.places = true, r.prices.places(n)
	}
	return o.places
}

func (r *RagpX) known(n *Node) *outlook {
	if n.known == nil || n.known.by != r.futures {
		n.known = &outlook{by: r.futures}
	}
	return n.known
}

// weigh multiplies a value by a weight in millionths.
func weigh(weight, value int64) int64 { return weight * value / Micro }
