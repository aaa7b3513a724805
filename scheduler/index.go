package scheduler

import (
	"cmp"
	"slices"

	"tranche/ledger"
)

// index is a snapshot arranged for deciding. Decide builds it when a snapshot
// comes without one; the simulator keeps it up to date with Put and Drop, so
// that a cycle costs what changed. Decide copies what it works on.
type index struct {
	t       *tree
	pools   []*poolIndex          // as Snapshot.Pools
	waiting map[ledger.JobID]*Job // of a kept snapshot
	listed  []Job                 // not yet in waiting
	live    map[AttemptRef]*Live  // of a kept snapshot
	funds   []ledger.Funds        // room for a cycle's copy; one cycle at a time decides on a snapshot
}

// poolIndex is one pool's nodes, live attempts and queues.
type poolIndex struct {
	pool    *Pool
	rooms   []room // by node id; slots cut from one array
	slots   []slot
	roomOf  map[ledger.NodeID]int32
	share   []int64 // by group
	rows    []row
	rowOf   map[AttemptRef]int32 // of a kept snapshot
	queues  [2][]*queue          // funded, unfunded; by project's position
	shapes  map[shapeKey]int32
	shapeOf []shapeKey // by number
	kinds   map[kindKey]int32
	kindOf  []kind  // by number
	sick    int     // nodes that are not healthy
	maint   int     // nodes with maintenance planned
	holders []*Live // in phase Reserved, by job and attempt; the first is the holder
	people  map[personKey]int32
	last    [2]*queue // that a job was put into
	marks   []mark    // room for a cycle's marks
	past    []int32   // room for its list of the unprotected
	scratch scratch
	judge   *judge // of placers that score; nil before it is asked
}

// row is a live attempt as the cycle scans it: what every cycle looks at stands
// side by side.
type row struct {
	live    *Live
	group   int32
	person  int32
	phase   Phase
	funded  bool
	milli   int64   // charged
	devices int32   // on all its nodes
	commit  Instant // protected until; before the claim 0
	minMs   int64
	holdEnd Instant // when more funds must be found; 0 = never
	end     Instant // maximum runtime; 0 = never
	asks    bool    // it is interactive, or its owner asked for new protection
}

// kind is what a kindKey stands for: what a start of it adds to its side.
type kind struct {
	shape   int32
	urgency int8
	milli   int64
	minMs   int64
	orFree  bool
}

// shapeKey is what a memo about free room is kept for. Shared devices belong to
// one project, so there the project counts.
type shapeKey struct {
	shape   Shape
	minMs   int64
	project ledger.GroupID
}

// kindKey tells apart jobs of one project that may fare differently.
type kindKey struct {
	shape   int32
	rate    ledger.Rate
	urgency int8
	orFree  bool
	left    ledger.Amount // of max_charge; −1 = none
}

// queue is one project's waiting jobs of one kind of money, in lanes.
type queue struct {
	group int32
	jobs  int
	lanes []*lane // by urgency downwards, then member
	first *entry  // the pool's holder goes before all; nil = not of this project
	kinds []kindCount
}

type kindCount struct {
	kind int32
	jobs int32
}

// lane is one member's jobs of one urgency, oldest first.
type lane struct {
	urgency int8
	member  ledger.PersonID
	person  int32
	jobs    []entry
}

type personKey struct {
	project ledger.GroupID
	member  ledger.PersonID
}

// entry is a waiting job with what it was sorted into.
type entry struct {
	job         *Job
	shape, kind int32
	holder      *Live // the attempt, of the reserved start's holder
}

func (s *Snapshot) index() *index {
	if s.ix == nil {
		s.ix = newIndex(s)
		for i := range s.Live {
			s.ix.addLive(&s.Live[i])
		}
		for i := range s.Waiting {
			s.ix.enqueue(&s.Waiting[i])
		}
		s.ix.listed = s.Waiting
	}
	return s.ix
}

// kept is the index of a snapshot that somebody changes piece by piece: it knows
// its waiting jobs and its attempts by their numbers.
func (s *Snapshot) kept() *index {
	ix := s.index()
	for i := range ix.listed {
		ix.waiting[ix.listed[i].ID] = &ix.listed[i]
	}
	ix.listed = nil
	if ix.live == nil {
		ix.live = make(map[AttemptRef]*Live, len(s.Live))
		for i := range s.Live {
			ix.live[s.Live[i].ref()] = &s.Live[i]
		}
		for _, pi := range ix.pools {
			pi.number()
		}
	}
	return ix
}

func newIndex(s *Snapshot) *index {
	ix := &index{
		t: newTree(s.Groups), waiting: map[ledger.JobID]*Job{},
	}
	for i := range s.Pools {
		ix.pools = append(ix.pools, newPoolIndex(s, ix.t, &s.Pools[i]))
	}
	return ix
}

func newPoolIndex(s *Snapshot, t *tree, p *Pool) *poolIndex {
	pi := &poolIndex{
		pool: p, roomOf: map[ledger.NodeID]int32{}, share: make([]int64, len(t.groups)),
		rows: make([]row, 0, len(s.Live)), shapes: map[shapeKey]int32{}, kinds: map[kindKey]int32{},
		people: map[personKey]int32{}, judge: s.memory.judgeOf(p.ID),
	}
	for i := range s.Shares {
		if g := t.pos(s.Shares[i].Group); s.Shares[i].Pool == p.ID && g >= 0 {
			pi.share[g] = max(0, s.Shares[i].MicroGPU)
		}
	}
	total := 0
	for i := range s.Nodes {
		if s.Nodes[i].Pool == p.ID {
			total += len(s.Nodes[i].Devices)
		}
	}
	pi.slots = make([]slot, total)
	rest := pi.slots
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Pool != p.ID {
			continue
		}
		pi.roomOf[n.ID] = int32(len(pi.rooms))
		pi.rooms = append(pi.rooms, newRoom(n, rest[:len(n.Devices):len(n.Devices)]))
		rest = rest[len(n.Devices):]
		if n.Health != Healthy {
			pi.sick++
		}
		if n.MaintFrom != 0 {
			pi.maint++
		}
	}
	return pi
}

// copyRooms gives the cycle rooms of its own.
func (pi *poolIndex) copyRooms() []room {
	rooms, slots := slices.Clone(pi.rooms), slices.Clone(pi.slots)
	for i := range rooms {
		n := len(rooms[i].slots)
		rooms[i].slots, slots = slots[:n:n], slots[n:]
	}
	return rooms
}

func (ix *index) poolOf(id ledger.PoolID) *poolIndex {
	i, ok := slices.BinarySearchFunc(ix.pools, id, func(p *poolIndex, id ledger.PoolID) int { return cmp.Compare(p.pool.ID, id) })
	if !ok {
		return nil
	}
	return ix.pools[i]
}

func (l *Live) ref() AttemptRef { return AttemptRef{Job: l.Job.ID, N: l.N} }

// number lets a pool find its rows by their attempts.
func (pi *poolIndex) number() {
	pi.rowOf = make(map[AttemptRef]int32, len(pi.rows))
	for i := range pi.rows {
		pi.rowOf[pi.rows[i].live.ref()] = int32(i)
	}
}

// putLive adds or replaces an attempt.
func (ix *index) putLive(l *Live) {
	ix.dropLive(l.ref())
	ix.live[l.ref()] = l
	if pi := ix.addLive(l); pi != nil && l.Phase != Reserved {
		pi.rowOf[l.ref()] = int32(len(pi.rows) - 1)
	}
}

// addLive adds an attempt that is not there yet to its pool, and gives that.
func (ix *index) addLive(l *Live) *poolIndex {
	pi, g := ix.poolOf(l.Job.Pool), ix.t.pos(l.Job.Project)
	if pi == nil {
		return nil
	}
	if l.Phase == Reserved {
		pi.putHolder(l, g)
		return pi
	}
	pi.rows = append(pi.rows, newRow(l, g, pi.personOf(l.Job.Project, l.Job.Member)))
	pi.occupy(pi.rooms, l, l.Phase, 1)
	return pi
}

// personOf numbers a member of a project.
func (pi *poolIndex) personOf(project ledger.GroupID, member ledger.PersonID) int32 {
	key := personKey{project, member}
	id, ok := pi.people[key]
	if !ok {
		id = int32(len(pi.people))
		pi.people[key] = id
	}
	return id
}

func newRow(l *Live, g, person int32) row {
	r := row{
		live: l, group: g, person: person, phase: l.Phase, funded: l.Funded, milli: l.Job.Rate.MilliGPU,
		asks: l.RenewMs > 0 || l.Job.Contract.Interactive, commit: l.ProtectedUntil, minMs: l.Job.Contract.MinMs,
	}
	for i := range l.Placed {
		r.devices += int32(len(l.Placed[i].Devices))
	}
	if l.Started == 0 {
		r.commit = 0
		return r
	}
	if l.Funded && (l.Phase != Ending || l.Rule.chargedToExit()) {
		r.holdEnd = l.Started.Add(l.HoldUntilMs - l.lead())
	}
	if ms := l.Job.Contract.MaxMs; ms > 0 && l.Phase != Ending {
		r.end = l.Started.Add(ms)
	}
	return r
}

// occupy puts an attempt into rooms under a phase, or takes it out again.
func (pi *poolIndex) occupy(rooms []room, l *Live, phase Phase, sign int64) {
	for i := range l.Placed {
		if n, ok := pi.roomOf[l.Placed[i].Node]; ok {
			rooms[n].put(&l.Placed[i], l.Job.Project, phase, sign)
		}
	}
}

func (ix *index) dropLive(ref AttemptRef) {
	l, ok := ix.live[ref]
	if !ok {
		return
	}
	delete(ix.live, ref)
	pi := ix.poolOf(l.Job.Pool)
	if pi == nil {
		return
	}
	if l.Phase == Reserved {
		pi.dropHolder(l, ix.t.pos(l.Job.Project))
		return
	}
	pi.occupy(pi.rooms, l, l.Phase, -1)
	i, last := pi.rowOf[ref], int32(len(pi.rows)-1)
	pi.rows[i] = pi.rows[last]
	pi.rowOf[pi.rows[i].live.ref()] = i
	pi.rows = pi.rows[:last]
	delete(pi.rowOf, ref)
}

// putWaiting queues a job. One whose pool or project is unknown is left out.
func (ix *index) putWaiting(j *Job) {
	ix.dropWaiting(j.ID)
	ix.waiting[j.ID] = j
	ix.enqueue(j)
}

// enqueue puts a job at its place in its lane.
func (ix *index) enqueue(j *Job) {
	pi, g := ix.poolOf(j.Pool), ix.t.pos(j.Project)
	if pi == nil || g < 0 {
		return
	}
	q := pi.queueOf(j, g)
	ln := q.laneOf(j)
	e := entry{job: j, shape: pi.shapeFor(j)}
	e.kind = pi.kindFor(j, e.shape)
	q.count(e.kind, 1)
	q.jobs++
	n := len(ln.jobs)
	if n == 0 {
		ln.person = pi.personOf(j.Project, j.Member)
	}
	if n == 0 || bySeq(ln.jobs[n-1].job, j) < 0 { // as a sorted list brings them
		ln.jobs = append(ln.jobs, e)
		return
	}
	i, _ := slices.BinarySearchFunc(ln.jobs, j, func(e entry, j *Job) int { return bySeq(e.job, j) })
	ln.jobs = slices.Insert(ln.jobs, i, e)
}

func bySeq(a, b *Job) int {
	return cmp.Or(cmp.Compare(a.QueueSeq, b.QueueSeq), cmp.Compare(a.ID, b.ID))
}

func (pi *poolIndex) queueOf(j *Job, g int32) *queue {
	list, last := &pi.queues[money(j)], &pi.last[money(j)]
	if *last != nil && (*last).group == g { // as a sorted list brings them
		return *last
	}
	i, ok := slices.BinarySearchFunc(*list, g, func(q *queue, g int32) int { return cmp.Compare(q.group, g) })
	if !ok {
		*list = slices.Insert(*list, i, &queue{group: g})
	}
	*last = (*list)[i]
	return *last
}

// money is 0 for jobs that start funded, 1 for the others.
func money(j *Job) int {
	if j.Contract.MinMs > 0 {
		return 0
	}
	return 1
}

func (q *queue) laneOf(j *Job) *lane {
	i := 0 // lanes are few
	for i < len(q.lanes) && q.lanes[i].before(j) {
		i++
	}
	if i == len(q.lanes) || q.lanes[i].urgency != j.Contract.Urgency || q.lanes[i].member != j.Member {
		q.lanes = slices.Insert(q.lanes, i, &lane{urgency: j.Contract.Urgency, member: j.Member})
	}
	return q.lanes[i]
}

// before says whether a lane comes before a job's own.
func (l *lane) before(j *Job) bool {
	u := j.Contract.Urgency
	return l.urgency > u || l.urgency == u && l.member < j.Member
}

func (pi *poolIndex) shapeFor(j *Job) int32 {
	k := shapeKey{shape: j.Shape, minMs: j.Contract.MinMs}
	if j.Shape.shared() {
		k.project = j.Project
	}
	id, ok := pi.shapes[k]
	if !ok {
		id = int32(len(pi.shapes))
		pi.shapes[k] = id
		pi.shapeOf = append(pi.shapeOf, k)
	}
	return id
}

// count notes how many jobs of a kind wait.
func (q *queue) count(kind, d int32) {
	for i := range q.kinds {
		if k := &q.kinds[i]; k.kind == kind {
			if k.jobs += d; k.jobs == 0 {
				q.kinds = slices.Delete(q.kinds, i, i+1)
			}
			return
		}
	}
	q.kinds = append(q.kinds, kindCount{kind, d})
}

func (pi *poolIndex) kindFor(j *Job, shape int32) int32 {
	k := kindKey{shape, j.Rate, j.Contract.Urgency, j.Contract.OrFree, maxChargeLeft(j.Contract.MaxCharge, j.Charged)}
	id, ok := pi.kinds[k]
	if !ok {
		id = int32(len(pi.kinds))
		pi.kinds[k] = id
		pi.kindOf = append(pi.kindOf, kind{shape, j.Contract.Urgency, j.Rate.MilliGPU, j.Contract.MinMs, j.Contract.OrFree})
	}
	return id
}

func (ix *index) dropWaiting(id ledger.JobID) {
	j, ok := ix.waiting[id]
	if !ok {
		return
	}
	delete(ix.waiting, id)
	pi, g := ix.poolOf(j.Pool), ix.t.pos(j.Project)
	if pi == nil || g < 0 {
		return
	}
	q := pi.queueOf(j, g)
	ln := q.laneOf(j)
	i, found := slices.BinarySearchFunc(ln.jobs, j, func(e entry, j *Job) int { return bySeq(e.job, j) })
	if found {
		q.count(ln.jobs[i].kind, -1)
		ln.jobs = slices.Delete(ln.jobs, i, i+1)
		q.jobs--
	}
	if len(ln.jobs) == 0 {
		q.lanes = slices.DeleteFunc(q.lanes, func(l *lane) bool { return l == ln })
	}
}

// PutLive adds or replaces a live attempt of a snapshot that is kept between
// cycles; its slices of live attempts and waiting jobs are then not used. The
// attempt must not be changed afterwards: put a new one.
func (s *Snapshot) PutLive(l *Live) { s.kept().putLive(l) }

// DropLive takes an attempt out. Unknown ones are ignored.
func (s *Snapshot) DropLive(ref AttemptRef) { s.kept().dropLive(ref) }

// PutWaiting queues or requeues a job; it must not be changed afterwards.
func (s *Snapshot) PutWaiting(j *Job) { s.kept().putWaiting(j) }

// DropWaiting takes a job out of its queue. Unknown ones are ignored.
func (s *Snapshot) DropWaiting(id ledger.JobID) { s.kept().dropWaiting(id) }

// Rearrange must be called after Pools, Groups, Shares or Nodes changed in a
// snapshot that is kept between cycles. Cost: O(everything).
func (s *Snapshot) Rearrange() {
	if s.ix == nil {
		return
	}
	old := s.kept()
	s.ix = newIndex(s)
	s.ix.live = make(map[AttemptRef]*Live, len(old.live))
	for _, pi := range s.ix.pools {
		pi.number()
		if was := old.poolOf(pi.pool.ID); was != nil {
			pi.judge = was.judge
		}
	}
	for _, l := range old.live {
		s.ix.putLive(l)
	}
	for _, j := range old.waiting {
		s.ix.putWaiting(j)
	}
}

// Clone gives a snapshot of its own arrangement, for deciding on beside others.
// What its slices hold is shared: replace them, do not write into them.
func (s *Snapshot) Clone() *Snapshot {
	c := s.Flat()
	c.ix = nil
	return c
}

// Flat gives the snapshot with its slices filled and sorted, as it is stored.
func (s *Snapshot) Flat() *Snapshot {
	f := *s
	f.memory = nil // it serves one snapshot at a time
	if s.ix == nil {
		return &f
	}
	s.kept()
	f.ix, f.Live, f.Waiting = nil, nil, nil
	for _, l := range s.ix.live {
		f.Live = append(f.Live, *l)
	}
	for _, j := range s.ix.waiting {
		f.Waiting = append(f.Waiting, *j)
	}
	slices.SortFunc(f.Live, func(a, b Live) int { return byAttempt(&a, &b) })
	slices.SortFunc(f.Waiting, func(a, b Job) int { return byQueue(&a, &b) })
	return &f
}
