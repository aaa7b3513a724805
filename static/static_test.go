package static

import (
	"crypto/sha512"
	"encoding/hex"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func get(t *testing.T, address string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, address, nil))
	return w
}

func TestFilesAreServedForEver(t *testing.T) {
	for _, name := range []string{"app.css", "app.js", "htmx.min.js", "favicon.svg"} {
		w := get(t, URL(name))
		if w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") || w.Body.Len() == 0 {
			t.Errorf("%s at %s: %d, %q", name, URL(name), w.Code, w.Header().Get("Cache-Control"))
		}
	}
	for _, address := range []string{Prefix + "app.css", Prefix + "app.000000000000.css", Prefix, Prefix + "../go.mod", URL("none.css")} {
		if w := get(t, address); w.Code != http.StatusNotFound || w.Header().Get("Cache-Control") != "" {
			t.Errorf("%s: %d, %q", address, w.Code, w.Header().Get("Cache-Control"))
		}
	}
}

func TestVendoredFilesAreUnchanged(t *testing.T) {
	notes, err := os.ReadFile("VENDOR.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` .* `([0-9a-f]{128})` \\|$").FindAllStringSubmatch(string(notes), -1)
	if len(rows) == 0 {
		t.Fatal("VENDOR.md names no file")
	}
	for _, row := range rows {
		b, err := files.ReadFile(row[1])
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha512.Sum512(b); hex.EncodeToString(sum[:]) != row[2] {
			t.Errorf("%s is not what VENDOR.md says", row[1])
		}
	}
}

// TestContrast holds text to 4.5:1 on its ground and marks to 3:1, in light and dark.
func TestContrast(t *testing.T) {
	css, err := files.ReadFile("app.css")
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string][2]string{}
	for _, m := range regexp.MustCompile(`--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)`).FindAllStringSubmatch(string(css), -1) {
		tokens[m[1]] = [2]string{m[2], m[3]}
	}
	for _, c := range []struct {
		on, ground string
		least      float64
	}{
		{"ink", "paper", 7},
		{"ink", "rail", 7},
		{"ink", "raised", 7},
		{"ink", "wash", 7},
		{"soft", "paper", 4.5},
		{"soft", "rail", 4.5},
		{"soft", "wash", 4.5},
		{"soft", "raised", 4.5},
		{"accent", "paper", 4.5},
		{"accent", "wash", 4.5},
		{"on-accent", "accent", 4.5},
		{"red", "paper", 4.5},
		{"red", "red-wash", 4.5},
		{"amber", "paper", 4.5},
		{"amber", "amber-wash", 4.5},
		{"violet", "paper", 3},
		{"edge", "paper", 2.9},
	} {
		for i, theme := range []string{"light", "dark"} {
			a, b := tokens[c.on][i], tokens[c.ground][i]
			if got := contrast(t, a, b); got < c.least {
				t.Errorf("%s: %s (%s) on %s (%s) has %.2f:1, needs %.1f:1", theme, c.on, a, c.ground, b, got, c.least)
			}
		}
	}
}

// contrast is WCAG's ratio of two colours.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
	if err != nil {
		t.Fatalf("colour %q: %v", colour, err)
	}
	part := func(shift uint) float64 {
		v := float64(n>>shift&0xff) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*part(16) + 0.7152*part(8) + 0.0722*part(0)
}
