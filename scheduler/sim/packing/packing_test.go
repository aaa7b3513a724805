package packing

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tranche/scheduler/placing"
)

const (
	nodeText = "sn,cpu_milli,memory_mib,gpu,model\nn-b,8000,4096,1,T4\nn-a,32000,8192,2,\n"
	podText  = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\np2,4000,1024,2,1000,V100|T4,LS\np1,1000,512,1,460,,BE\np3,1000,512,0,0,,\n"
)

func TestReadNodesAndPods(t *testing.T) {
	nodes, err := ReadNodes(strings.NewReader(nodeText))
	if err != nil || len(nodes) != 2 || nodes[0].Name != "n-a" || nodes[1].Model != "T4" {
		t.Fatalf("nodes %+v, error %v", nodes, err)
	}
	want := placing.Vector{placing.CPU: 32000, placing.RAM: 8192, placing.SM: 2000}
	if nodes[0].Cap != want || nodes[0].Free != want || len(nodes[0].Devices) != 2 || nodes[0].Devices[1].SM != 1000 {
		t.Errorf("node %+v", nodes[0])
	}
	pods, err := ReadPods(strings.NewReader(podText))
	if err != nil || len(pods) != 3 || pods[0].Name != "p1" || pods[0].Share != 460 || pods[2].Count != 0 {
		t.Fatalf("pods %+v, error %v", pods, err)
	}
	if p := pods[1]; p.Demand[placing.SM] != 2000 || !slices.Equal(p.Models, []string{"T4", "V100"}) {
		t.Errorf("pod %+v", p)
	}
}

func TestReadersNameTheMalformedLine(t *testing.T) {
	for _, bad := range []string{"p4,x,1,1,1000,,", "p4,1,-1,1,1000,,", "p4,1,1,2,500,,", "p4,1,1,1,1001,,", "p4,1,1,99,1000,,", "p4,1,1,1,0,,", "p4,1", "p4,99999999999999,1,1,1000,,"} {
		if _, err := ReadPods(strings.NewReader(podText + bad + "\n")); err == nil || !strings.Contains(err.Error(), "line 5") {
			t.Errorf("%q: error %v does not name line 5", bad, err)
		}
	}
	if _, err := ReadNodes(strings.NewReader("sn,cpu_milli\n")); err == nil || !strings.Contains(err.Error(), "memory_mib") {
		t.Errorf("a missing column: %v", err)
	}
	if _, err := ReadNodes(strings.NewReader("")); err == nil {
		t.Error("an empty file is accepted")
	}
}

// Ten jobs of a tenth of a GPU fill the one GPU at exactly 100 % of arrivals; what
// comes after is lost.
func TestRunByHand(t *testing.T) {
	var pods []Pod
	for i := range 10 {
		pods = append(pods, Pod{Name: fmt.Sprint(i), Ask: placing.Ask{Count: 1, Share: 100, Demand: placing.Vector{placing.CPU: 100, placing.SM: 100}}})
	}
	node := placing.NewNode("n", "", placing.Vector{placing.CPU: 1000, placing.SM: 1000}, 1)
	for _, name := range Names() {
		got, err := Run(Options{Nodes: []placing.Node{node}, Pods: pods, Policy: name, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		want := Result{Capacity: 1000, Placed: 10, Lost: 3}
		for _, m := range Marks() {
			// 0.1 of a GPU at a time: a mark between two arrivals is read at the later
			used := min(1000, int64((m+9)/10*100))
			want.Marks = append(want.Marks, Mark{ArrivedPct: m, Allocated: used, Idle: 1000 - used})
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if node.Free[placing.CPU] != 1000 || node.Devices[0].SM != 1000 {
		t.Error("the run changed its input")
	}
	for _, bad := range []Options{
		{Nodes: []placing.Node{node}, Pods: pods, Policy: "magic"},
		{Nodes: []placing.Node{node}, Policy: "tranche"},
		{Nodes: []placing.Node{node}, Pods: []Pod{{}}, Policy: "tranche"},
		{Pods: pods, Policy: "fgd"},
	} {
		if r, err := Run(bad); err == nil {
			t.Errorf("nothing to compare gives %+v", r)
		}
	}
}

// dataFolder is the public trace's, wherever it is on this machine.
func dataFolder(t testing.TB) string {
	t.Helper()
	for _, root := range []string{os.Getenv("TRANCHE_DATA"), "../../../../shared/data", "../../../../../shared/data"} {
		dir := filepath.Join(root, "alibaba-gpu-2023")
		if info, err := os.Stat(dir); root != "" && err == nil && info.IsDir() {
			return dir
		}
	}
	t.Skip("the trace alibaba-gpu-2023 is not here; TRANCHE_DATA names the folder it is in")
	return ""
}

// openb reads the cluster and a list of its jobs.
func openb(t testing.TB, list string) ([]placing.Node, []Pod) {
	t.Helper()
	dir := dataFolder(t)
	open := func(name string) io.Reader {
		file, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		if !strings.HasSuffix(name, ".gz") {
			return file
		}
		in, err := gzip.NewReader(file)
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	nodes, err := ReadNodes(open("nodes/openb_node_list_gpu_node.csv"))
	if err != nil {
		t.Fatal(err)
	}
	pods, err := ReadPods(open("pods/openb_pod_list_" + list))
	if err != nil {
		t.Fatal(err)
	}
	return nodes, pods
}

// The yardsticks must be as long as they were when they were published.
func TestPublishedBaselinesAreMet(t *testing.T) {
	nodes, pods := openb(t, "default.csv")
	for _, c := range []struct {
		policy string
		at100  int64 // published mean in 1/100 %
	}{{"fgd", 9523}, {"bestfit", 9286}} {
		r, err := Run(Options{Nodes: nodes, Pods: pods, Policy: c.policy, Seed: 42})
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(r.Marks, func(m Mark) bool { return m.ArrivedPct == 100 })
		got := r.Marks[at].Allocated * 10_000 / r.Capacity
		if off := got - c.at100; off > 45 || off < -45 {
			t.Errorf("%s allocates %d/100 %%, published %d/100 %%", c.policy, got, c.at100)
		}
	}
}

// ragp-x allocates the same whatever nodes are called and in which order they come.
func TestOrderAndNamesOfNodesDoNotMatter(t *testing.T) {
	nodes, pods := openb(t, "default.csv")
	nodes = nodes[:150] // enough to have several models, and quick
	want, err := Run(Options{Nodes: nodes, Pods: pods, Policy: "tranche", Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	other := slices.Clone(nodes)
	slices.Reverse(other)
	for i := range other {
		other[i].Name = fmt.Sprintf("renamed-%d", i)
	}
	got, err := Run(Options{Nodes: other, Pods: pods, Policy: "tranche", Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v in other order, %+v before", got, want)
	}
}
