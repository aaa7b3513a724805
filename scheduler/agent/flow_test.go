package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// fakeMachine is a machine whose counters a test writes.
func fakeMachine(t *testing.T, files map[string]string) (*Machine, func(path, text string)) {
	t.Helper()
	root := t.TempDir()
	write := func(path, text string) {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range files {
		write(path, text)
	}
	return &Machine{Root: root}, write
}

func netDev(loIn, ethIn, ethOut, vethIn string) string {
	row := func(name, in, out string) string {
		return "  " + name + ": " + in + " 1 0 0 0 0 0 0 " + out + " 1 0 0 0 0 0 0\n"
	}
	return "Inter-| Receive | Transmit\n face |bytes packets|bytes packets\n" + row("lo", loIn, loIn) + row("eth0", ethIn, ethOut) + row("veth9", vethIn, "0")
}

func said(v *int64) any {
	if v == nil {
		return "nothing"
	}
	return *v
}

// What moved is told per second: the busier direction of real interfaces, whole
// disks without their partitions, and NFS mounts, each export once.
func TestMachineReadsWhatMoves(t *testing.T) {
	disk := func(sectors string) string {
		return "   8 0 sda 1 0 " + sectors + " 0 1 0 1000 0 0 0 0\n   8 1 sda1 1 0 9999999 0 1 0 9999999 0 0 0 0\n 253 0 dm-0 1 0 5 0 1 0 9999999 0 0 0 0\n"
	}
	nfs := func(fetched string) string {
		one := "device store:/a mounted on /mnt with fstype nfs4 statvers=1.1\n\tbytes:\t1 2 3 4 " + fetched + " 50000 7 8\n"
		return "device proc mounted on /proc with fstype proc\n" + one + one
	}
	m, write := fakeMachine(t, map[string]string{
		"proc/net/dev": netDev("1", "1000", "2000", "1"), "proc/diskstats": disk("1000"), "proc/self/mountstats": nfs("50000"),
		"sys/class/net/eth0/device/x": "", "sys/block/sda/device/x": "", "sys/block/dm-0/x": "",
	})
	now := int64(1_000_000)
	m.nowUS = func() int64 { return now }
	if f := m.Read(nil); f.NetMbps != nil || f.StoMBps != nil {
		t.Errorf("the first reading says %v and %v", said(f.NetMbps), said(f.StoMBps))
	}
	now += 2_000_000
	write("proc/net/dev", netDev("99999999", "501000", "250002000", "9999999"))
	write("proc/diskstats", disk("2001000"))
	write("proc/self/mountstats", nfs("200050000"))
	f := m.Read(nil)
	if said(f.NetMbps) != int64(1000) || said(f.StoMBps) != int64(512+100) {
		t.Errorf("%v Mbit/s, %v MB/s; want 1000 and 612", said(f.NetMbps), said(f.StoMBps))
	}
	now += 1_000_000
	write("proc/net/dev", netDev("0", "5", "5", "0")) // the interface was set up anew
	write("proc/diskstats", "")
	if f := m.Read(nil); f.NetMbps != nil || f.StoMBps != nil {
		t.Errorf("counters that went back give %v and %v", said(f.NetMbps), said(f.StoMBps))
	}
}

// A machine without such files says nothing rather than zero.
func TestMachineWithoutCountersSaysNothing(t *testing.T) {
	m, _ := fakeMachine(t, nil)
	now := int64(0)
	m.nowUS = func() int64 { now += 1_000_000; return now }
	m.Read(nil)
	if f := m.Read(nil); f.NetMbps != nil || f.StoMBps != nil {
		t.Errorf("%v and %v", said(f.NetMbps), said(f.StoMBps))
	}
}

// A simulated node moves what its attempts do, and nothing without them.
func TestSimulatedFlowFollowsAttempts(t *testing.T) {
	if f := (SimulatedFlow{}).Read(nil); *f.NetMbps != 0 || *f.StoMBps != 0 {
		t.Errorf("an empty node moves %d and %d", *f.NetMbps, *f.StoMBps)
	}
	one := (SimulatedFlow{}).Read(map[int][]Tenant{0: {{7, 1000}}, 1: {{7, 1000}}})
	if *one.NetMbps < 1000 || *one.NetMbps > 4500 || *one.StoMBps < 300 || *one.StoMBps > 1650 {
		t.Errorf("one attempt moves %d Mbit/s and %d MB/s", *one.NetMbps, *one.StoMBps)
	}
}

// A storage hook's number counts; whatever else it does is said as its failure.
func TestStorageHookOutcomes(t *testing.T) {
	for _, c := range []struct {
		hook   string
		ppm    int64
		failed string
	}{
		{"echo 87", 870_000, ""},
		{"printf ' 87.5 %%\\n'; echo noise >&2", 875_000, ""},
		{"echo 140%", 1_400_000, ""},
		{"echo 900", 2_000_000, ""},
		{"echo 0", 0, ""},
		{"echo -3", 0, `it printed "-3", not a percentage`},
		{"echo NaN", 0, `it printed "NaN", not a percentage`},
		{"true", 0, `it printed "", not a percentage`},
		{"echo 90; echo no such pool >&2; exit 3", 0, "no such pool (exit status 3)"},
	} {
		got := runStorage(t.Context(), c.hook, "n7", 20*time.Second)
		if got.PPM != c.ppm || got.Failed != c.failed || got.N == 0 {
			t.Errorf("%s: %+v, want %d %q", c.hook, got, c.ppm, c.failed)
		}
	}
	if got := runStorage(t.Context(), "sleep 60 & sleep 60", "n7", 50*time.Millisecond); got.Failed != "it did not end within 50ms" {
		t.Errorf("one that hangs: %+v", got)
	}
}

// What moves and what the storage hook said are in the heartbeats.
func TestFlowAndStorageTravelWithHeartbeats(t *testing.T) {
	p, dir := newPeer(t), openDir(t)
	cfg := testConfig(t, p, dir)
	cfg.StorageHook, cfg.StorageEvery, cfg.Flow = "echo 42", 20*time.Millisecond, SimulatedFlow{}
	runAgent(t, cfg)
	var first int64
	until(t, "two runs were heard of", func() bool {
		beats := p.seenBeats()
		if len(beats) == 0 {
			return false
		}
		if beats[0].Storage == nil {
			t.Fatal("the first heartbeat says that there is no hook")
		}
		last := beats[len(beats)-1]
		if last.Storage.N == 0 {
			return false
		}
		if last.Storage.PPM != 420_000 || last.Flow.NetMbps == nil || *last.Flow.NetMbps != 0 {
			t.Fatalf("storage %+v, flow %+v", last.Storage, last.Flow)
		}
		if first == 0 {
			first = last.Storage.N
		}
		return last.Storage.N > first
	})
}
