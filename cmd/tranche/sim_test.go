package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSimRun(t *testing.T) {
	const world = "node n1 pool=h100 gpus=8\nproject /lab/a share=1 award=100h\n"
	for _, c := range []struct {
		name, text string
		code       int
		says       string
	}{
		{"holds", world + "0h submit j1 /lab/a gpus=8 min=1h for=2h  cycle -> start j1 n1 hold=8h\n2h cycle -> charge j1 16h", exitOK, "j1"},
		{"does not hold", world + "0h submit j1 /lab/a gpus=8 min=1h  cycle -> start j1 hold=9h", exitRefused, "line 3"},
		{"has an unknown option", world + "0h submit j1 /lab/a gpu=8", exitRefused, "line 3"},
		{"has an unknown word", world + "0h sumbit j1", exitUsage, "line 3"},
		{"goes back in time", world + "2h cycle\n1h cycle", exitUsage, "line 4"},
	} {
		file := filepath.Join(t.TempDir(), "case.scn")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		if code := run([]string{"sim", "run", file}, strings.NewReader(""), &out, &errOut); code != c.code {
			t.Errorf("a scenario that %s: exit code %d, want %d: %s", c.name, code, c.code, &errOut)
		}
		if !strings.Contains(out.String()+errOut.String(), c.says) {
			t.Errorf("a scenario that %s does not say %q: %s%s", c.name, c.says, &out, &errOut)
		}
	}
}

func TestSimRunPrintsJSON(t *testing.T) {
	var out, errOut bytes.Buffer
	if code := run([]string{"sim", "run", "--json", "../../scheduler/sim/testdata/house.scn"}, strings.NewReader(""), &out, &errOut); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &errOut)
	}
	var got simAnswer
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if !got.OK || got.Cycles != 3 || got.Starts != 2 || got.BooksSum != 0 || len(got.Projects) != 2 {
		t.Errorf("got %+v", got)
	}
}
