package placing

import (
	"encoding/binary"
	"math"
)

const (
	sequences = 24  // fixed random futures
	draws     = 100 // jobs drawn in each
	bands     = 11
)

// band is the rows without the kinds whose part of a device is above a limit of 0,
// 100, 200, ... 1000: on nodes with less left on every device they are passed over.
type band struct {
	kinds []int
	rows  [sequences][]uint16
}

// futures works out expected stranded GPUs: the mean, over fixed random rows of
// jobs drawn from the mix, of the GPU left when a node is filled with the row
// greedily. The rows are the same for every node (common random numbers), so
// two states differ only by what they can hold.
type futures struct {
	kinds []Ask
	small []bool // per kind: asks for nothing but CPU, memory and compute of devices
	bands [bands]band
	memo  map[string]int64 // state → sum over the rows, 1/1000 GPU
	open  map[string][]bool
	key   []byte
	room  []Device
	fill  []Device
	alive []bool
	need  need
}

// need is the least that any kind with GPUs asks for which fits a state: with
// less than this left, a row cannot take more GPU away.
type need struct{ cpu, share int64 }

func newFutures(m Mix, seed uint64) *futures {
	f := &futures{memo: map[string]int64{}, open: map[string][]bool{}}
	for i := range m.Kinds {
		a := m.Kinds[i].Ask
		f.kinds = append(f.kinds, a)
		f.small = append(f.small, a.Demand == Vector{CPU: a.Demand[CPU], RAM: a.Demand[RAM], SM: a.Demand[SM]})
	}
	f.alive = make([]bool, len(f.kinds))
	if m.Total == 0 {
		return f
	}
	var upTo []int64
	sum := int64(0)
	for i := range m.Kinds {
		sum += m.Kinds[i].Weight
		upTo = append(upTo, sum)
	}
	for i := range f.kinds {
		for b := bandOf(f.kinds[i].Share); b < bands; b++ {
			f.bands[b].kinds = append(f.bands[b].kinds, i)
		}
	}
	dice := NewDice(seed)
	for s := range sequences {
		for range draws {
			at, kind := int64(dice.Below(int(m.Total))), 0
			for upTo[kind] <= at {
				kind++
			}
			for b := bandOf(f.kinds[kind].Share); b < bands; b++ {
				f.bands[b].rows[s] = append(f.bands[b].rows[s], uint16(kind))
			}
		}
	}
	return f
}

// bandOf is the first band that has parts of this size.
func bandOf(share int64) int { return int(min((share+99)/100, bands-1)) }

// stranded is the sum over the rows of the GPU left, 1/1000 GPU; divided by
// sequences it is the expectation.
func (f *futures) stranded(n *Node) int64 {
	f.room = sortedDevices(f.room[:0], n.Devices)
	f.key = append(f.key[:0], n.Model...)
	for d := range Dims {
		f.key = binary.AppendVarint(f.key, n.Free[d])
	}
	for _, d := range f.room {
		f.key = binary.AppendVarint(f.key, d.SM)
		f.key = binary.AppendVarint(f.key, d.HBM)
	}
	f.key = binary.AppendVarint(f.key, n.deviceHBM())
	if v, ok := f.memo[string(f.key)]; ok {
		return v
	}
	v := f.work(n)
	f.memo[string(f.key)] = v
	return v
}

// work plays the rows on a state whose devices are in room.
func (f *futures) work(n *Node) int64 {
	allowed := f.allowed(n.Model)
	band := &f.bands[bandOf(roomiest(f.room))]
	f.need = need{math.MaxInt64, math.MaxInt64}
	clear(f.alive)
	for _, i := range band.kinds {
		a := &f.kinds[i]
		if !allowed[i] || !within(&a.Demand, &n.Free) || !a.roomy(f.room) {
			continue
		}
		f.alive[i] = true
		if a.Count > 0 {
			f.need.cpu = min(f.need.cpu, a.Demand[CPU])
			f.need.share = min(f.need.share, a.Share)
		}
	}
	if f.need.cpu > n.Free[CPU] {
		return sequences * n.Free[SM] // no kind with GPUs fits
	}
	var sum int64
	for s := range band.rows {
		sum += f.play(n, band.rows[s])
	}
	return sum
}

// play fills the state with one row and gives the GPU left.
func (f *futures) play(n *Node, row []uint16) int64 {
	free, whole := n.Free, n.deviceHBM()
	f.fill = append(f.fill[:0], f.room...)
	for _, kind := range row {
		if !f.alive[kind] {
			continue
		}
		a := &f.kinds[kind]
		if a.Demand[SM] > free[SM] || a.Demand[CPU] > free[CPU] || a.Demand[RAM] > free[RAM] {
			continue
		}
		if !f.small[kind] && !within(&a.Demand, &free) || a.Count > 0 && !put(a, f.fill, whole) {
			continue
		}
		free[CPU] -= a.Demand[CPU]
		free[RAM] -= a.Demand[RAM]
		free[SM] -= a.Demand[SM]
		if !f.small[kind] {
			for _, d := range []int{HBM, Net, Sto, IOC} {
				free[d] -= a.Demand[d]
			}
		}
		if free[CPU] < f.need.cpu || a.Count > 0 && roomiest(f.fill) < f.need.share {
			break
		}
	}
	return free[SM]
}

// roomiest is the most compute that any device has left.
func roomiest(devices []Device) int64 {
	most := int64(0)
	for i := range devices {
		most = max(most, devices[i].SM)
	}
	return most
}

// put takes the ask's devices, the tightest that hold it; false changes nothing.
func put(a *Ask, devices []Device, whole int64) bool {
	if a.Count == 1 {
		at := tightest(a, devices, whole)
		if at < 0 {
			return false
		}
		devices[at].SM -= a.Share
		devices[at].HBM -= a.HBM
		return true
	}
	if !a.roomy(devices) {
		return false
	}
	left := a.Count
	for i := range devices {
		if left > 0 && a.holds(devices[i]) {
			devices[i].SM -= a.Share
			devices[i].HBM -= a.HBM
			left--
		}
	}
	return true
}

// within says whether every dimension has room.
func within(demand, free *Vector) bool {
	for d := range Dims {
		if demand[d] > free[d] {
			return false
		}
	}
	return true
}

// allowed says for each kind whether it may run on the model.
func (f *futures) allowed(model string) []bool {
	list, ok := f.open[model]
	if !ok {
		for i := range f.kinds {
			list = append(list, f.kinds[i].Allows(model))
		}
		f.open[model] = list
	}
	return list
}
