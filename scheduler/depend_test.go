package scheduler

import "testing"

func TestDependsOnWhatItWaitsFor(t *testing.T) {
	ok, failed := Awaited{NeedsOK, true, ResultOK}, Awaited{NeedsOK, true, ResultFailed}
	running, after := Awaited{Needs: NeedsOK}, Awaited{NeedsAny, true, ResultCancelled}
	for _, c := range []struct {
		name string
		on   []Awaited
		want Readiness
	}{
		{"nothing", nil, Ready},
		{"all ended well", []Awaited{ok, ok}, Ready},
		{"one still runs", []Awaited{ok, running}, Waits},
		{"afterok on a failure", []Awaited{running, failed}, Never},
		{"afterok on a failure, beside one that runs", []Awaited{failed, running}, Never},
		{"afterok on a cancelled one", []Awaited{{NeedsOK, true, ResultCancelled}}, Never},
		{"afterany on a cancelled one", []Awaited{after, ok}, Ready},
		{"afterany still running", []Awaited{{Needs: NeedsAny}, after}, Waits},
	} {
		if got := Depends(c.on); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
