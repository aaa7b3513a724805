package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"tranche/scheduler/sim/stalls"
)

// Pictures are well-formed, escape what they are given, and show every figure.
func TestPicturesAreWellFormed(t *testing.T) {
	a := placementAnswer{Seeds: []uint64{1, 2}, Results: []placementLine{
		{Scenario: "A<b>", Policy: "tetris_5", Result: stalls.Result{StallPct: 12.34, FFit: 0.2, ProductiveGPUHours: 1234}},
		{Scenario: "A<b>", Policy: "ragp_x", Result: stalls.Result{StallPct: 0.2, FFit: 0.1, ProductiveGPUHours: 1500}},
	}}
	measured := map[string]map[string]any{"default": {
		"tranche": figures{"allocated_pct_at_80": 80, "allocated_pct_at_100": 96.08, "allocated_pct_at_130": 96.15},
		"fgd":     figures{"allocated_pct_at_80": 80, "allocated_pct_at_100": 95.2, "allocated_pct_at_130": 95.4},
	}}
	published := publishedFigures{"default": {"fgd": {"allocated_pct_at_100": 95.23}}}
	for name, picture := range map[string]struct {
		text string
		says []string
	}{
		"placement":        {placementPicture(a), []string{"A&lt;b&gt;", ">12.3<", ">1234<", "Means of 2", "RAGP-X"}},
		"packing":          {packingPicture([]string{"default"}, measured, published, 3), []string{"RAGP-X 96.15", "+0.85", "published: 95.23"}},
		"packing, unknown": {packingPicture([]string{"own"}, map[string]map[string]any{"own": {}}, nil, 3), []string{"list own"}},
	} {
		d := xml.NewDecoder(strings.NewReader(picture.text))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for _, s := range picture.says {
			if !strings.Contains(picture.text, s) {
				t.Errorf("%s does not say %q", name, s)
			}
		}
	}
}
