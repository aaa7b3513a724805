package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// smallTrace writes a trace of one node with two GPUs, and jobs of half a GPU.
func smallTrace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	const pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,1000,512,1,500\np2,1000,512,1,500\n"
	if _, err := z.Write([]byte(pods)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"nodes/openb_node_list_gpu_node.csv": "sn,cpu_milli,memory_mib,gpu,model\nn1,8000,8192,2,T4\n",
		"pods/openb_pod_list_default.csv":    pods,
		"pods/openb_pod_list_zipped.csv.gz":  zipped.String(),
		"published/fgd_published_summary.csv": "metric,workload,policy,arrived_pct,seeds,mean,sd,min,max\n" +
			"alloc_pct,default,FGD,100,10,95.2270,0.1,95,96\nfrag_ratio_pct_of_idle,default,BestFit,90,10,74.084,1,1,1\n",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSimPackingPrintsJSON(t *testing.T) {
	var out, errOut bytes.Buffer
	args := []string{"sim", "packing", "--json", "--trace", smallTrace(t), "--lists", "default,zipped", "--seeds", "2", "--policies", "tranche,fgd"}
	if code := run(args, strings.NewReader(""), &out, &errOut); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &errOut)
	}
	if !strings.Contains(errOut.String(), "8 of 8 runs") {
		t.Errorf("progress is %q", &errOut)
	}
	var got map[string]struct {
		Tranche, FGD map[string]float64
		Bestfit      map[string]float64
		Published    map[string]map[string]float64
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{"default", "zipped"} {
		// Halves arrive: 50 and 100 % are met exactly, at 130 % all is given.
		for _, p := range []map[string]float64{got[list].Tranche, got[list].FGD} {
			if p["allocated_pct_at_50"] != 50 || p["allocated_pct_at_100"] != 100 || p["allocated_pct_at_130"] != 100 || p["seeds"] != 2 {
				t.Errorf("%s: %v", list, p)
			}
		}
	}
	if got["default"].Published["fgd"]["allocated_pct_at_100"] != 95.23 || got["default"].Published["bestfit"]["frag_ratio_pct_at_90"] != 74.08 {
		t.Errorf("published: %v", got["default"].Published)
	}
	if got["zipped"].Published != nil || got["default"].Bestfit != nil {
		t.Errorf("there is more than was asked for: %s", &out)
	}
}

func TestSimPackingPrintsATable(t *testing.T) {
	trace := smallTrace(t)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--lists", "all", "--policies", "fgd", "--seeds", "1"}, exitOK, "95.23"},
		{[]string{"--policies", "magic"}, exitUsage, "ragp_io"},
		{[]string{"--seeds", "0"}, exitUsage, "--seeds"},
		{[]string{"--lists", "none"}, exitRefused, "openb_pod_list_none"},
	} {
		var out, errOut bytes.Buffer
		code := run(append([]string{"sim", "packing", "--trace", trace}, c.args...), strings.NewReader(""), &out, &errOut)
		if code != c.code || !strings.Contains(out.String()+errOut.String(), c.says) {
			t.Errorf("%v: exit code %d, want %d with %q: %s%s", c.args, code, c.code, c.says, &out, &errOut)
		}
	}
}
