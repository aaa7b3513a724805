package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"testing"

	"tranche/scheduler"
)

// Whatever happens between two cycles, the delta makes the later snapshot of the
// earlier one, exactly, also after both went through JSON; and what it makes
// decides to the same bytes.
func TestADeltaMakesTheNextSnapshot(t *testing.T) {
	m := newMishaps(t, 77)
	var before *scheduler.Snapshot
	for step := range 600 {
		m.strike()
		s, err := m.Snapshot(context.Background(), m.now)
		if err != nil {
			t.Fatal(err)
		}
		flat := through(t, s.Flat())
		plan := scheduler.Decide(s)
		if before != nil {
			d := through(t, scheduler.Diff(before, flat))
			made, err := d.Apply(before)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(jsonOf(t, made), jsonOf(t, flat)) {
				t.Fatalf("step %d:\n%s\nis not\n%s", step, jsonOf(t, made), jsonOf(t, flat))
			}
			if again := scheduler.Decide(made); !bytes.Equal(again.Bytes(), plan.Bytes()) {
				t.Fatalf("step %d: the made snapshot decides otherwise", step)
			}
		}
		before = flat
		if _, err := m.Cycle(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := (&scheduler.Delta{Live: scheduler.Edits[scheduler.Live]{Drop: []int{1 << 20}}}).Apply(before); err == nil {
		t.Error("a delta that drops what is not there was applied")
	}
}

// A field that somebody adds to Snapshot must be carried by the delta.
func TestADeltaCarriesEveryField(t *testing.T) {
	snapshot, delta := reflect.TypeFor[scheduler.Snapshot](), reflect.TypeFor[scheduler.Delta]()
	for i := range snapshot.NumField() {
		if f := snapshot.Field(i); f.IsExported() {
			if _, ok := delta.FieldByName(f.Name); !ok {
				t.Errorf("Delta does not carry Snapshot.%s", f.Name)
			}
		}
	}
}

func through[T any](t *testing.T, v T) T {
	t.Helper()
	var out T
	if err := json.Unmarshal(jsonOf(t, v), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func jsonOf(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
