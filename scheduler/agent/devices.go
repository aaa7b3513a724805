package agent

import (
	"context"
	"fmt"
	"hash/fnv"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"tranche/ledger"
	"tranche/web/api"
)

// DeviceSource finds a node's devices and reads their use.
type DeviceSource interface {
	// Discover lists the node's devices by index.
	Discover(ctx context.Context) ([]api.Device, error)
	// Read gives one reading per device; busy says which attempts run where.
	Read(ctx context.Context, busy map[int][]Tenant) ([]api.DeviceUse, error)
}

// Tenant is an attempt on a device, with its part of it in thousandths.
type Tenant struct {
	Attempt ledger.AttemptID
	Milli   int64
}

// NoDevices is a CPU node.
type NoDevices struct{}

// Discover finds nothing.
func (NoDevices) Discover(context.Context) ([]api.Device, error) { return nil, nil }

// Read reads nothing.
func (NoDevices) Read(context.Context, map[int][]Tenant) ([]api.DeviceUse, error) {
	return nil, nil
}

// Simulated is a node with Count devices that do not exist; their use follows
// from the attempts that hold them.
type Simulated struct {
	Node   string // makes the device names unique
	Count  int
	Model  string
	HBMMiB int64
}

// Discover lists the devices.
func (s Simulated) Discover(context.Context) ([]api.Device, error) {
	out := make([]api.Device, s.Count)
	for i := range out {
		out[i] = api.Device{Index: i, UUID: fmt.Sprintf("SIM-%s-%d", s.Node, i), Model: s.Model, HBMMiB: s.HBMMiB}
	}
	return out, nil
}

// Read gives each attempt a level of its own on its part of a device, which moves a
// little every ten seconds. Like most jobs it uses less memory than it may.
func (s Simulated) Read(_ context.Context, busy map[int][]Tenant) ([]api.DeviceUse, error) {
	out := make([]api.DeviceUse, s.Count)
	tick := bootMicros() / 10_000_000
	for i := range out {
		out[i] = api.DeviceUse{Index: i, OK: true}
		for _, a := range busy[i] {
			level := spread(int64(a.Attempt), 0)
			out[i].UtilPct += (55 + level%35 + spread(int64(a.Attempt), tick+int64(i))%10) * a.Milli / 1000
			out[i].HBMUsedMiB += s.HBMMiB * (40 + level%50 + spread(int64(a.Attempt), tick/3+int64(i))%8) / 100 * a.Milli / 1000
		}
	}
	return out, nil
}

// spread turns two numbers into an even one in 0..999.
func spread(a, b int64) int64 {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, a, "/", b) // a hash never fails to write
	return int64(h.Sum32() % 1000)
}

// NvidiaSMI reads real devices with the driver's own tool.
type NvidiaSMI struct {
	Command string // default "nvidia-smi"
}

// smiTimeout bounds one run of nvidia-smi: a broken device can hang it.
const smiTimeout = 10 * time.Second

// Discover lists the devices the driver knows; it fails where there is no driver.
func (n NvidiaSMI) Discover(ctx context.Context) ([]api.Device, error) {
	rows, err := n.query(ctx, "index,uuid,name,memory.total", 4)
	if err != nil {
		return nil, err
	}
	out := make([]api.Device, len(rows))
	for i, r := range rows {
		d := api.Device{UUID: r[1], Model: r[2]}
		if d.Index, err = strconv.Atoi(r[0]); err != nil {
			return nil, fmt.Errorf("nvidia-smi: index %q: %w", r[0], err)
		}
		if d.HBMMiB, err = strconv.ParseInt(r[3], 10, 64); err != nil {
			return nil, fmt.Errorf("nvidia-smi: memory of device %d: %w", d.Index, err)
		}
		out[i] = d
	}
	return out, nil
}

// Read gives use and memory; a device whose row cannot be read is not OK.
func (n NvidiaSMI) Read(ctx context.Context, _ map[int][]Tenant) ([]api.DeviceUse, error) {
	rows, err := n.query(ctx, "index,utilization.gpu,memory.used", 3)
	if err != nil {
		return nil, err
	}
	var out []api.DeviceUse
	for _, r := range rows {
		index, err := strconv.Atoi(r[0])
		if err != nil {
			continue // a device without an index cannot be told apart
		}
		util, errUtil := strconv.ParseInt(r[1], 10, 64)
		used, errUsed := strconv.ParseInt(r[2], 10, 64)
		u := api.DeviceUse{Index: index, UtilPct: util, HBMUsedMiB: used, OK: errUsed == nil}
		if errUtil != nil { // MIG devices and some boards do not tell it
			u.UtilPct = -1
		}
		out = append(out, u)
	}
	return out, nil
}

// query runs nvidia-smi and splits its lines into exactly the asked columns.
func (n NvidiaSMI) query(ctx context.Context, columns string, count int) ([][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, smiTimeout)
	defer cancel()
	name := n.Command
	if name == "" {
		name = "nvidia-smi"
	}
	text, err := exec.CommandContext(ctx, name, "--query-gpu="+columns, "--format=csv,noheader,nounits").Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		f := strings.Split(line, ",")
		if len(f) != count {
			return nil, fmt.Errorf("%s: expected %d columns in %q", name, count, strings.TrimSpace(line))
		}
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		rows = append(rows, f)
	}
	return rows, nil
}
