package scheduler

import "tranche/scheduler/placing"

// What a rank takes of a node beside its devices. A node that offers none of a kind
// (capacity 0) has no room for whoever asks for some of it.
const (
	ofCPU = iota // [1/1000 core]
	ofRAM        // [MiB]
	ofNet        // [Mbit/s]
	ofSto        // storage bandwidth [MB/s]
	ofIOC        // processors that move data [1/1000 core]
	ofStoVar
	ofIOCVar
	kinds

	// narrow is how many of them count where neither the node nor who asks knows
	// network, storage or processors that move data.
	narrow = ofNet
)

// amounts is so much of each. The variances of several jobs add up like what they
// ask for, so what they need together grows slower than what each needs alone.
type amounts [kinds]int64

func (s *Shape) amounts() amounts {
	return amounts{s.CPUMilli, s.RAMMiB, s.NetMbps, s.StoMbps, s.IOCMilli, s.StoVar, s.IOCVar}
}

func (p *Placed) amounts() amounts {
	return amounts{p.CPUMilli, p.RAMMiB, p.NetMbps, p.StoMbps, p.IOCMilli, p.StoVar, p.IOCVar}
}

// amounts is what a node offers; of its storage, what is left while it is degraded.
func (n *Node) amounts() amounts {
	sto := n.StoMbps
	if n.StoPPM > 0 && n.StoPPM < 1_000_000 {
		sto = sto/1_000_000*n.StoPPM + sto%1_000_000*n.StoPPM/1_000_000
	}
	return amounts{ofCPU: n.CPUMilli, ofRAM: n.RAMMiB, ofNet: n.NetMbps, ofSto: sto, ofIOC: n.IOCMilli}
}

// wide says whether anything but CPU and memory is asked for.
func (a *amounts) wide() bool { return a[ofNet]|a[ofSto]|a[ofIOC] != 0 }

// wide says whether a shape asks for more than CPU and memory.
func (s *Shape) wide() bool { return s.NetMbps|s.StoMbps|s.IOCMilli != 0 }

func (a *amounts) add(b *amounts, sign int64) {
	for k := range a {
		a[k] += sign * b[k]
	}
}

// short is the first of which a node that offers so much has too little for who
// uses it; FitsOK when all is there. Storage and its processors are held back for one
// standard deviation of everybody's demand together.
func (offer *amounts) short(used *amounts) string {
	switch {
	case used[ofCPU] > offer[ofCPU]:
		return FitsCPU
	case used[ofRAM] > offer[ofRAM]:
		return FitsRAM
	case used[ofNet] > offer[ofNet]:
		return FitsNet
	case used[ofSto] > 0 && used[ofSto]+placing.Deviation(used[ofStoVar]) > offer[ofSto]:
		return FitsStorage
	case used[ofIOC] > 0 && used[ofIOC]+placing.Deviation(used[ofIOCVar]) > offer[ofIOC]:
		return FitsIOC
	}
	return FitsOK
}

// piece is a part of one device: compute in 1/1000, memory in MiB and its variance.
type piece struct{ milli, hbm, swing int64 }

// pieceOf is what a rank takes of each device of a node. Who names no memory takes
// as large a part of it as of the compute.
func (n *Node) pieceOf(milli, hbm, variance int64) piece {
	if hbm == 0 {
		return piece{milli, n.HBMMiB * milli / 1000, 0}
	}
	return piece{milli, hbm, variance}
}

// memory says whether a device has the memory for who uses it.
func (n *Node) memory(hbm, variance int64) bool { return hbm+placing.Deviation(variance) <= n.HBMMiB }
