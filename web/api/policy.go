package api

import (
	"time"

	"tranche/ledger"
)

// Paths of the policy.
const (
	PathPolicy = "/api/v1/policy" // GET, POST SetPolicy
)

// Policy is every knob of the dispatcher as it is, and who turned which.
type Policy struct {
	Version int64           `json:"version"`
	Knobs   []PolicyKnob    `json:"knobs"`
	History []PolicyVersion `json:"history"` // newest first
}

// PolicyKnob is one number, written as people write it: "8 h", "5 %", "on".
type PolicyKnob struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Group   string `json:"group"`
	Unit    string `json:"unit"` // duration, percent, count, switch, choice
	Value   string `json:"value"`
	Default string `json:"default"`
	Range   string `json:"range"`
	Help    string `json:"help"`
}

// PolicyVersion is one saved change.
type PolicyVersion struct {
	Version int64        `json:"version"`
	At      time.Time    `json:"at"`
	By      string       `json:"by"`
	Why     string       `json:"why"`
	Turns   []PolicyTurn `json:"turns"`
}

// PolicyTurn is one knob of it.
type PolicyTurn struct {
	Name string `json:"name"`
	From string `json:"from"`
	To   string `json:"to"`
}

// SetPolicy says what some knobs are to be.
type SetPolicy struct {
	Key     string            `json:"key"`
	Set     map[string]string `json:"set"`                // by name
	Why     string            `json:"why,omitempty"`      // needed to save
	BasedOn int64             `json:"based_on,omitempty"` // version it was made from; 0 = the one that holds
	Preview bool              `json:"preview,omitempty"`  // only say what the next cycle would do otherwise
}

// PolicyPreview is what a change does, and the version it was saved as.
type PolicyPreview struct {
	Turns       []string           `json:"turns"`
	Differences []PolicyDifference `json:"differences"` // of the next cycle; empty when there are none, or it was saved
	Saved       int64              `json:"saved,omitempty"`
}

// PolicyDifference is one kind of difference in the next cycle.
type PolicyDifference struct {
	Kind  string         `json:"kind"` // gained, lost, moved, evicted, spared, promised, dropped
	Text  string         `json:"text"`
	Jobs  int            `json:"jobs"`
	First []ledger.JobID `json:"first"` // at most 50
}
