package ledger

import (
	"slices"
	"strings"
	"testing"
)

const day Instant = 24 * 3600 * 1_000_000

// quarter is a period of 90 days from day 10.
func quarter() Period {
	return Period{ID: 1, Name: "2026-Q4", First: 10 * day, Last: 100 * day, Zone: "UTC"}
}

func manager() Actor {
	return Actor{Person: 5, Name: "Mara", Grants: []Grant{{Role: Manager, Group: 2, Path: "/lab/vision"}}}
}

func typedRequest() RequestInput {
	return RequestInput{
		Project: 3, Path: "/lab/vision/a", Program: 2, Period: quarter(), Pools: []PoolID{1, 2}, Author: 7,
		Title: "Segment everything", Purpose: "Train a model", Outcome: "A model", Lines: []RequestLine{{Pool: 1, Asked: 80 * GPUHour}}, Submit: true, Now: 20 * day,
	}
}

func submitted(t *testing.T) Request {
	t.Helper()
	req, rs := NewRequest(typedRequest())
	if len(rs) > 0 {
		t.Fatal(rs)
	}
	req.ID = 17
	return req
}

func TestSupply(t *testing.T) {
	p := quarter()
	got, r := p.Supply(16, 950_000)
	if want := Amount(16 * 90 * 24 * 95 / 100 * int64(GPUHour)); r != nil || got != want {
		t.Errorf("got %s, %v", got.Hours(), r)
	}
	for _, c := range [][2]int64{{0, 950_000}, {16, 0}, {16, 1_000_001}, {1 << 62, 1_000_000}, {-1, 1}} {
		if _, r := p.Supply(c[0], c[1]); r == nil {
			t.Errorf("%v accepted", c)
		}
	}
}

func TestRequestNamesEveryWrongField(t *testing.T) {
	in := typedRequest()
	in.Title, in.Purpose, in.Outcome = strings.Repeat("é", 201), strings.Repeat("x", 4001), " "
	in.Project, in.Path, in.Deadline, in.Period.Last = 0, "", in.Now-1, in.Now
	in.Lines = []RequestLine{{Pool: 1, Asked: -1}, {Pool: 9, Asked: 5}, {Pool: 2, Asked: 5}, {Pool: 2, Asked: 5}}
	_, rs := NewRequest(in)
	var fields []string
	for _, r := range rs {
		if r.Kind != Invalid {
			t.Errorf("%s is %d", r.Code, r.Kind)
		}
		fields = append(fields, r.Field)
	}
	want := []string{"title", "purpose", "outcome", "project", "period", "deadline", "amount.1", "amount.9", "amount.2"}
	if !slices.Equal(fields, want) {
		t.Errorf("fields %v, want %v", fields, want)
	}
	if text := rs.Error(); !strings.Contains(text, "201 characters") {
		t.Errorf("sentence %q", text)
	}
}

func TestRequestBounds(t *testing.T) {
	in := typedRequest()
	in.Title, in.Purpose = strings.Repeat("é", 200), strings.Repeat("é", 4000)
	in.Deadline = in.Now
	in.Lines = append([]RequestLine{{Pool: 2, Asked: 1}}, append(in.Lines, RequestLine{Pool: 9})...)
	req, rs := NewRequest(in)
	if len(rs) > 0 || req.State != Submitted || req.Version != 1 || len(req.Lines) != 2 || req.Lines[0].Pool != 1 {
		t.Errorf("%+v, %v", req, rs)
	}
	in.Lines = nil
	if _, rs := NewRequest(in); len(rs) != 1 || rs[0].Field != "amount.1" {
		t.Errorf("nothing asked: %v", rs)
	}
	in.Submit, in.Purpose, in.Outcome = false, "", ""
	if req, rs := NewRequest(in); len(rs) > 0 || req.State != Draft {
		t.Errorf("draft: %+v, %v", req, rs)
	}
	in.Title = ""
	if _, rs := NewRequest(in); len(rs) != 1 || rs[0].Field != "title" {
		t.Errorf("draft without a title: %v", rs)
	}
}

func TestRequestStates(t *testing.T) {
	states := []RequestState{Draft, Submitted, Returned, Awarded, RequestDenied, Withdrawn}
	actions := []RequestAction{Edit, Submit, Withdraw, Award, Deny, Return}
	allowed := map[string]RequestState{
		"draft edit": Draft, "draft submit": Submitted, "draft withdraw": Withdrawn,
		"submitted withdraw": Withdrawn, "submitted award": Awarded, "submitted deny": RequestDenied, "submitted return": Returned,
		"returned edit": Returned, "returned submit": Submitted, "returned withdraw": Withdrawn,
	}
	for _, s := range states {
		for _, a := range actions {
			want, ok := allowed[string(s)+" "+string(a)]
			got, r := s.Next(a)
			if ok != (r == nil) || (ok && got != want) || (!ok && (got != s || r.Kind != Conflict)) {
				t.Errorf("%s %s: %s, %v", s, a, got, r)
			}
		}
	}
}

func TestReviseKeepsIdentity(t *testing.T) {
	req := submitted(t)
	req.State = Returned
	in := typedRequest()
	in.Title, in.Author, in.Project, in.Submit = "Better", 8, 99, true
	next, rs := req.Revise(in, req.Version)
	if len(rs) > 0 || next.Title != "Better" || next.State != Submitted || next.Version != 2 || next.Author != 7 || next.Project != 3 || next.ID != 17 {
		t.Errorf("%+v, %v", next, rs)
	}
	if _, rs := req.Revise(in, 9); len(rs) != 1 || rs[0].Kind != Conflict {
		t.Errorf("stale version: %v", rs)
	}
	in.Title = ""
	if _, rs := req.Revise(in, req.Version); len(rs) != 1 || rs[0].Field != "title" {
		t.Errorf("bad title: %v", rs)
	}
	if _, rs := submitted(t).Revise(in, 1); len(rs) != 1 || rs[0].Kind != Conflict {
		t.Errorf("a submitted request was edited: %v", rs)
	}
}
