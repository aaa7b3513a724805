package scheduler

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// Every field of the policy but its version is a knob, with a default in range
// that survives being written and read.
func TestEveryPolicyFieldIsAKnob(t *testing.T) {
	p := DefaultPolicy()
	if refusals := p.Validate(); len(refusals) > 0 {
		t.Errorf("the default is refused: %v", refusals)
	}
	known := map[string]bool{"Version": true}
	for _, k := range Knobs() {
		known[k.field] = true
		field, ok := reflect.TypeFor[Policy]().FieldByName(k.field)
		if !ok || field.Tag.Get("json") != k.Name {
			t.Errorf("%s is not the field %s", k.Name, k.field)
			continue
		}
		if k.Title == "" || k.Group == "" || len(k.Help) < 20 {
			t.Errorf("%s is not described", k.Name)
		}
		for _, n := range []int64{k.Get(&p), k.Min, k.Max} {
			if got, refusal := k.Parse(k.Text(n)); refusal != nil || got != n {
				t.Errorf("%s: %d is written %q and read %d, %v", k.Name, n, k.Text(n), got, refusal)
			}
		}
		other := p
		k.Set(&other, k.Get(&p))
		if other != p {
			t.Errorf("%s: setting what it is changes %+v", k.Name, other)
		}
	}
	for i := range reflect.TypeFor[Policy]().NumField() {
		if name := reflect.TypeFor[Policy]().Field(i).Name; !known[name] {
			t.Errorf("%s is no knob", name)
		}
	}
}

func TestKnobsReadWhatPeopleType(t *testing.T) {
	byName := map[string]Knob{}
	for _, k := range Knobs() {
		byName[k.Name] = k
	}
	for _, c := range []struct {
		knob, text string
		want       int64
	}{
		{"cap_ms", "8h", 8 * hourMs},
		{"cap_ms", "1h30m", 90 * minuteMs},
		{"cap_ms", " 90 min ", 90 * minuteMs},
		{"lookback_ms", "7 d", 7 * dayMs},
		{"margin_ppm", "5", 50_000},
		{"margin_ppm", "2.5 %", 25_000},
		{"holder_evicts", "off", 0},
		{"evict_per_minute", "1,200", 1200},
	} {
		k := byName[c.knob]
		if got, refusal := k.Parse(c.text); refusal != nil || got != c.want {
			t.Errorf("%s %q: %d, %v", c.knob, c.text, got, refusal)
		}
	}
	for knob, text := range map[string]string{"cap_ms": "8 weeks", "margin_ppm": "200 %", "holder_evicts": "perhaps", "evict_per_minute": "-1", "lookback_ms": "", "placer": "worst"} {
		k := byName[knob]
		if n, refusal := k.Parse(text); refusal == nil || refusal.Field != knob {
			t.Errorf("%s %q was read as %d", knob, text, n)
		}
	}
}

func TestPolicyRefusesWhatDoesNotGoTogether(t *testing.T) {
	p := DefaultPolicy()
	p.GraceMs, p.CapMs, p.IdleUnprotectMs = p.GraceCapMs+1, p.MaxRuntimeMs+1, p.IdleAfterMs-1
	var fields []string
	for _, r := range p.Validate() {
		fields = append(fields, r.Field)
	}
	if got := strings.Join(fields, " "); got != "cap_ms grace_ms cap_ms idle_unprotect_ms" {
		t.Errorf("refused: %s", got)
	}
	q := DefaultPolicy()
	if turns := Turned(&q, &p); len(turns) != 3 || turns[0].Knob.Name != "cap_ms" || turns[0].To != p.CapMs {
		t.Errorf("turned %+v", turns)
	}
}

const policyIntro = `# The dispatcher's policy

Every number the dispatcher goes by is versioned data. Admins change it on the page Policy (or with ` + "`tranche policy set`" + `); before a change is saved the page shows what the very next cycle would do otherwise. Everybody signed in may read it, with who changed what, when and why.

This page is written from the program's own table.
`

// docs/policy.md says of every knob what the table says.
func TestPolicyIsDocumented(t *testing.T) {
	const file = "../docs/policy.md"
	var b strings.Builder
	b.WriteString(policyIntro)
	p, group := DefaultPolicy(), ""
	for _, k := range Knobs() {
		if k.Group != group {
			group = k.Group
			b.WriteString("\n## " + group + "\n\n| name | knob | default | may be | what it does |\n|---|---|---|---|---|\n")
		}
		b.WriteString("| `" + k.Name + "` | " + k.Title + " | " + k.Text(k.Get(&p)) + " | " + k.Range() + " | " + k.Help + " |\n")
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != b.String() {
		t.Errorf("docs/policy.md does not say what the table says (%v): go test ./scheduler -run Policy -rewrite", err)
	}
}
