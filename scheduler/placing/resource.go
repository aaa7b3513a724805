// Package placing scores nodes for a job. It is pure: the same node, ask and
// policy give the same integers on every machine, so a placement can be decided
// again elsewhere. Everything is counted in whole units (1/1000 core, MiB,
// 1/1000 GPU, ...) and scores in fixed point, one unit being a millionth.
package placing

import (
	"math"
	"slices"
)

// The seven dimensions of a Vector, each in the unit the caller chose; the units
// of this project are in brackets.
const (
	CPU = iota // [1/1000 core]
	RAM        // [MiB]
	SM         // compute of the devices, summed [1/1000 GPU]
	HBM        // memory of the devices, summed [MiB]
	Net        // [Mbit/s]
	Sto        // storage bandwidth [MiB/s]
	IOC        // processors that move data [1/1000 core]
	Dims
)

// WholeGPU is one device's compute.
const WholeGPU = 1000

// Vector is an amount of each dimension.
type Vector [Dims]int64

// Device is what one GPU has left.
type Device struct {
	SM  int64 // 1/1000 GPU
	HBM int64 // MiB
}

// Node is a machine with what it has and what is left of it. Once placers have
// seen it, only Take may change it.
type Node struct {
	Name      string
	Model     string // of its GPUs, empty without
	Cap, Free Vector
	Devices   []Device // what is left of each, in the machine's own order
	Tags      uint32   // what runs here, a bit per Ask.Tag

	known *outlook // what ragp-x worked out about this state
}

// NewNode gives an empty node with the capacity and count equal devices.
func NewNode(name, model string, capacity Vector, count int) Node {
	n := Node{Name: name, Model: model, Cap: capacity, Free: capacity, Devices: make([]Device, count)}
	for i := range n.Devices {
		n.Devices[i] = Device{SM: capacity[SM] / int64(count), HBM: capacity[HBM] / int64(count)}
	}
	return n
}

// Ask is what one job wants of one node.
type Ask struct {
	Demand Vector // of the whole job; SM and HBM are Devices times Share and HBM
	Count  int    // of devices
	Share  int64  // of each device, 1/1000; WholeGPU when Count is above one
	HBM    int64  // of each device, MiB
	Models []string
}

// Allows says whether the ask may run on GPUs of the model; no list allows all.
func (a *Ask) Allows(model string) bool {
	return a.Count == 0 || len(a.Models) == 0 || slices.Contains(a.Models, model)
}

// Tag is the kind of job for placers that keep kinds together: 0 is a part of a
// GPU, q is a job with q whole GPUs. It has no meaning without GPUs.
func (a *Ask) Tag() int {
	if a.Share < WholeGPU {
		return 0
	}
	return min(a.Count, 31)
}

// holds says whether the device has room for the ask's part of it.
func (a *Ask) holds(d Device) bool { return d.SM >= a.Share && d.HBM >= a.HBM }

// Fits says whether the ask can run on what is left of the node: every
// dimension, the GPU model, and enough devices with room. What a node has
// nothing of (capacity zero) cannot be asked for.
func (n *Node) Fits(a *Ask) bool {
	for d := range Dims {
		if a.Demand[d] > n.Free[d] {
			return false
		}
	}
	if a.Count == 0 {
		return true
	}
	return a.Allows(n.Model) && a.roomy(n.Devices)
}

// roomy says whether enough of the devices have room.
func (a *Ask) roomy(devices []Device) bool {
	found := 0
	for _, d := range devices {
		if a.holds(d) {
			if found++; found >= a.Count {
				return true
			}
		}
	}
	return a.Count == 0
}

// tight picks the devices that leave least: for a part of a GPU the one with the
// smallest rest of compute and memory, each counted as part of a whole device;
// for whole GPUs the first that are free.
func (n *Node) tight(a *Ask) []int {
	if a.Count == 0 {
		return nil
	}
	if a.Count == 1 {
		return []int{tightest(a, n.Devices, n.deviceHBM())}
	}
	picked := make([]int, 0, a.Count)
	for i, d := range n.Devices {
		if a.holds(d) && len(picked) < a.Count {
			picked = append(picked, i)
		}
	}
	return picked
}

// deviceHBM is what one device of the node has when empty, at least 1.
func (n *Node) deviceHBM() int64 { return max(1, n.Cap[HBM]/max(1, int64(len(n.Devices)))) }

// tightest is the position of the device with room that has least left; -1 if
// none has room.
func tightest(a *Ask, devices []Device, wholeHBM int64) int {
	best, least := -1, int64(math.MaxInt64)
	for i := range devices {
		d := &devices[i]
		if d.SM < a.Share || d.HBM < a.HBM {
			continue
		}
		if left := d.SM*wholeHBM + d.HBM*WholeGPU; left < least {
			best, least = i, left
		}
	}
	return best
}

// Take removes the ask from what is left, its devices being those named.
func (n *Node) Take(a *Ask, devices []int) {
	n.known = nil
	for d := range Dims {
		n.Free[d] -= a.Demand[d]
	}
	for _, i := range devices {
		n.Devices[i].SM -= a.Share
		n.Devices[i].HBM -= a.HBM
	}
	if a.Count > 0 {
		n.Tags |= 1 << a.Tag()
	}
}

// after sets into to the node with the ask on the devices; into is reused.
func (n *Node) after(into *Node, a *Ask, devices []int) {
	kept := append(into.Devices[:0], n.Devices...)
	*into = *n
	into.Devices = kept
	into.Take(a, devices)
}
