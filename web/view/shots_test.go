package view

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var shots = flag.String("shots", "", "write every page as an HTML file into this folder, to look at")

// TestShots writes each page with its style sheet beside it, so that a browser
// can open the files without a server.
func TestShots(t *testing.T) {
	if *shots == "" {
		t.Skip("run with -args -shots DIR to write the pages as files")
	}
	for _, p := range fullPages(zone(t)) {
		var b bytes.Buffer
		if err := p.c.Render(context.Background(), &b); err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		html := strings.ReplaceAll(b.String(), `="/static/`, `="static/`)
		for _, theme := range []string{"light", "dark"} {
			themed := strings.Replace(html, "<html ", `<html data-theme="`+theme+`" `, 1)
			if err := os.WriteFile(filepath.Join(*shots, p.name+"-"+theme+".html"), []byte(themed), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
