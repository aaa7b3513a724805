package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"tranche/ledger"
	"tranche/web/api"
)

// FlowSource reads what moves through a node.
type FlowSource interface {
	// Read gives what moved since the call before, per second. A field is nil where
	// the node cannot tell; busy says which attempts run on which device.
	Read(busy map[int][]Tenant) api.NodeFlow
}

// Machine reads the counters of the machine the agent runs on. It serves one
// goroutine.
type Machine struct {
	Root string // of /proc and /sys; "" = the real ones

	lastUS  int64
	lastNet []int64 // bytes in, bytes out; nil = not read yet
	lastSto []int64 // bytes read and written
	nowUS   func() int64
}

// Read takes the busier direction of the network, whose links are as wide in
// each, and what was read and written together of storage.
func (m *Machine) Read(map[int][]Tenant) api.NodeFlow {
	if m.nowUS == nil {
		m.nowUS = bootMicros
	}
	now := m.nowUS()
	net, sto := m.network(), m.storage()
	span := now - m.lastUS
	var f api.NodeFlow
	if span > 0 && m.lastUS > 0 {
		if moved, ok := since(m.lastNet, net); ok {
			f.NetMbps = new(max(moved[0], moved[1]) * 8 / span) // bits per µs are Mbit/s
		}
		if moved, ok := since(m.lastSto, sto); ok {
			f.StoMBps = new(moved[0] / span) // bytes per µs are MB/s
		}
	}
	m.lastUS, m.lastNet, m.lastSto = now, net, sto
	return f
}

// since is what counters grew by; false where one was not read or went back, as
// when a disk or an interface has gone.
func since(was, is []int64) ([]int64, bool) {
	if was == nil || is == nil {
		return nil, false
	}
	grown := make([]int64, len(is))
	for i := range is {
		if grown[i] = is[i] - was[i]; grown[i] < 0 {
			return nil, false
		}
	}
	return grown, true
}

// network sums the bytes of the interfaces: of those with hardware behind them
// where there are any, else of all but the loopback. nil where none can be read.
func (m *Machine) network() []int64 {
	text, err := os.ReadFile(m.Root + "/proc/net/dev")
	if err != nil {
		return nil
	}
	var real, all []int64
	for line := range strings.Lines(string(text)) {
		name, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		name = strings.TrimSpace(name)
		if !ok || len(f) < 16 || name == "lo" {
			continue
		}
		in, errIn := strconv.ParseInt(f[0], 10, 64)
		out, errOut := strconv.ParseInt(f[8], 10, 64)
		if errIn != nil || errOut != nil {
			continue
		}
		all = plus(all, in, out)
		if m.exists("/sys/class/net", name, "device") {
			real = plus(real, in, out)
		}
	}
	if real != nil {
		return real
	}
	return all
}

func plus(sum []int64, values ...int64) []int64 {
	if sum == nil {
		return values
	}
	for i, v := range values {
		sum[i] += v
	}
	return sum
}

func (m *Machine) exists(parts ...string) bool {
	_, err := os.Stat(filepath.Join(append([]string{m.Root}, parts...)...))
	return err == nil
}

// storage sums the bytes of whole disks, so that no partition or volume on them
// counts twice, and of file systems mounted over NFS.
func (m *Machine) storage() []int64 {
	disks, over := m.disks(), m.nfs()
	if disks == nil && over == nil {
		return nil
	}
	return plus([]int64{0}, sum(disks)+sum(over))
}

func sum(values []int64) (total int64) {
	for _, v := range values {
		total += v
	}
	return total
}

func (m *Machine) disks() []int64 {
	text, err := os.ReadFile(m.Root + "/proc/diskstats")
	if err != nil {
		return nil
	}
	const sector = 512 // bytes, whatever the disk's own
	var total []int64
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 10 || !m.exists("/sys/block", strings.ReplaceAll(f[2], "/", "!"), "device") {
			continue
		}
		read, errRead := strconv.ParseInt(f[5], 10, 64)
		written, errWritten := strconv.ParseInt(f[9], 10, 64)
		if errRead == nil && errWritten == nil {
			total = plus(total, (read+written)*sector)
		}
	}
	return total
}

// nfs reads what NFS mounts have fetched from and sent to their servers. A server's
// export mounted twice has one set of counters, which counts once.
func (m *Machine) nfs() []int64 {
	text, err := os.ReadFile(m.Root + "/proc/self/mountstats")
	if err != nil {
		return nil
	}
	var total []int64
	seen, device := map[string]bool{}, ""
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		switch {
		case len(f) > 1 && f[0] == "device":
			device = f[1]
		case len(f) > 6 && f[0] == "bytes:" && !seen[device]:
			seen[device] = true
			fetched, errFetched := strconv.ParseInt(f[5], 10, 64)
			sent, errSent := strconv.ParseInt(f[6], 10, 64)
			if errFetched == nil && errSent == nil {
				total = plus(total, fetched+sent)
			}
		}
	}
	return total
}

// SimulatedFlow is what moves through a node whose devices do not exist: each
// attempt moves an amount of its own, with bursts.
type SimulatedFlow struct{}

// Read gives each attempt 1 to 3 Gbit/s and 300 to 1,100 MB/s, and in a quarter of
// the minutes half as much again.
func (SimulatedFlow) Read(busy map[int][]Tenant) api.NodeFlow {
	var net, sto int64
	there := map[ledger.AttemptID]bool{}
	for _, tenants := range busy {
		for _, t := range tenants {
			there[t.Attempt] = true
		}
	}
	for a := range there {
		level := spread(int64(a), 1)
		burst := int64(100)
		if spread(int64(a), bootMicros()/60_000_000) < 250 {
			burst = 150
		}
		net += (1000 + 2*level) * burst / 100
		sto += (300 + level*4/5) * burst / 100
	}
	return api.NodeFlow{NetMbps: &net, StoMBps: &sto}
}
