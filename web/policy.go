package web

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/a-h/templ"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/web/api"
	"tranche/web/view"
)

// mostDiffLines bounds each list of a preview.
const mostDiffLines = 50

// showPolicy is the policy for everybody to read, and for admins to change.
func (s *server) showPolicy(w http.ResponseWriter, r *http.Request) error {
	page, err := s.policyPage(r, newForm(), nil)
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

// changePolicy shows what typed values would change in the next cycle, or saves
// them as a new version.
func (s *server) changePolicy(w http.ResponseWriter, r *http.Request) error {
	again := func(err error) error {
		return s.again(w, r, err, func(f view.Form) (templ.Component, error) { return s.policyPage(r, f, nil) })
	}
	now, err := s.store.PolicyNow(r.Context())
	if err != nil {
		return err
	}
	policy, refusals := typedPolicy(now, r.PostForm)
	if len(refusals) > 0 {
		return again(refusals)
	}
	if r.PostForm.Get("do") != "save" {
		diff, err := s.store.PolicyPreview(r.Context(), policy)
		if err != nil {
			return again(err)
		}
		preview := s.policyPreview(&now, &policy, &diff)
		page, err := s.policyPage(r, view.Form{Key: formKey(r), Values: r.PostForm}, preview)
		if err != nil {
			return err
		}
		return s.show(w, r, page)
	}
	basedOn, err := strconv.ParseInt(r.PostForm.Get("based_on"), 10, 64)
	if err != nil {
		return invalid("based_on", "policy.based_on", "The form does not say which version it was made from; load the page again.")
	}
	version, err := s.store.SavePolicy(r.Context(), s.command(r), basedOn, policy, r.PostForm.Get("why"))
	if err != nil {
		return again(err)
	}
	return s.done(w, r, view.PolicyURL, fmt.Sprintf("Saved as version %d. The next cycle goes by it.", version))
}

// typedPolicy is the policy with the values of a form; absent ones stay.
func typedPolicy(now scheduler.Policy, values url.Values) (scheduler.Policy, ledger.Refusals) {
	typed := map[string]string{}
	for name := range values {
		typed[name] = values.Get(name)
	}
	return turned(now, typed)
}

// turned applies what was typed for knobs by name; other names are left alone.
func turned(policy scheduler.Policy, typed map[string]string) (scheduler.Policy, ledger.Refusals) {
	var refusals ledger.Refusals
	for _, k := range scheduler.Knobs() {
		text, ok := typed[k.Name]
		if !ok {
			continue
		}
		n, refusal := k.Parse(text)
		if refusal != nil {
			refusals = append(refusals, refusal)
			continue
		}
		k.Set(&policy, n)
	}
	if len(refusals) == 0 {
		refusals = policy.Validate()
	}
	return policy, refusals
}

func (s *server) policyPage(r *http.Request, form view.Form, preview *view.PolicyPreview) (templ.Component, error) {
	policy, err := s.store.PolicyNow(r.Context())
	if err != nil {
		return nil, err
	}
	history, err := s.store.PolicyHistory(r.Context())
	if err != nil {
		return nil, err
	}
	root, err := s.store.Root(r.Context())
	if err != nil {
		return nil, err
	}
	m := view.Policy{
		Form: form, Version: policy.Version, Preview: preview,
		MayWrite: actorOf(r).May(ledger.PolicyWrite, root.Path, s.store.Now()) == nil,
	}
	last := map[string]string{}
	for i := len(history) - 1; i >= 0; i-- {
		v := &history[i]
		row := view.PolicyChange{Version: v.Version, At: s.when(v.At), By: v.By, Why: v.Why}
		for _, t := range v.Turns {
			change := t.Knob.Text(t.From) + " → " + t.Knob.Text(t.To)
			row.Turns = append(row.Turns, t.Knob.Title+": "+change)
			last[t.Knob.Name] = change + " by " + v.By + ", " + s.when(v.At).Text
		}
		m.History = append(m.History, row)
	}
	slices.Reverse(m.History)
	def := scheduler.DefaultPolicy()
	for _, k := range scheduler.Knobs() {
		knob := view.PolicyKnob{
			Name: k.Name, Title: k.Title, Value: k.Text(k.Get(&policy)), Default: k.Text(k.Get(&def)), Range: k.Range(), Help: k.Help, Last: last[k.Name],
		}
		switch k.Unit {
		case scheduler.UnitSwitch:
			knob.Choices = []view.Option{{Value: "on", Text: "on"}, {Value: "off", Text: "off"}}
		case scheduler.UnitChoice:
			for _, c := range k.Choices {
				knob.Choices = append(knob.Choices, view.Option{Value: c, Text: c})
			}
		}
		if n := len(m.Groups); n == 0 || m.Groups[n-1].Title != k.Group {
			m.Groups = append(m.Groups, view.PolicyGroup{Title: k.Group})
		}
		g := &m.Groups[len(m.Groups)-1]
		g.Knobs = append(g.Knobs, knob)
	}
	answer := fmt.Sprintf("Version %d holds.", policy.Version)
	if len(history) > 0 {
		answer = fmt.Sprintf("Version %d holds, saved by %s, %s.", policy.Version, history[0].By, s.when(history[0].At).Text)
	}
	return view.PolicyPage(s.shell(r, "Policy", "policy", answer), m), nil
}

// policyPreview words what the next cycle would do otherwise.
func (s *server) policyPreview(now, then *scheduler.Policy, d *scheduler.PlanDiff) *view.PolicyPreview {
	p := &view.PolicyPreview{None: d.Empty(), Turns: turnTexts(now, then)}
	if len(p.Turns) == 0 {
		p.Turns = []string{"No knob differs from the policy that holds."}
	}
	for _, l := range diffLists(d) {
		if len(l.lines) == 0 {
			continue
		}
		list := view.PolicyDiffList{ID: l.id, Title: plural(int64(len(l.lines)), "job") + " " + l.text}
		for _, line := range l.lines[:min(len(l.lines), mostDiffLines)] {
			text := "Job " + idText(line.Job)
			if line.Rule != "" {
				text += " (" + string(line.Rule) + ")"
			}
			if line.By != 0 {
				text += ", for job " + idText(line.By)
			}
			list.Lines = append(list.Lines, view.Link{Text: text, URL: view.JobURL(line.Job)})
		}
		if more := len(l.lines) - mostDiffLines; more > 0 {
			list.More = "and " + strconv.Itoa(more) + " more"
		}
		p.Lists = append(p.Lists, list)
	}
	return p
}

func turnTexts(now, then *scheduler.Policy) []string {
	out := []string{}
	for _, t := range scheduler.Turned(now, then) {
		out = append(out, t.Knob.Title+": "+t.Knob.Text(t.From)+" → "+t.Knob.Text(t.To))
	}
	return out
}

type diffList struct {
	id, text string
	lines    []scheduler.DiffLine
}

// diffLists names the parts of a difference, for page and command line alike.
func diffLists(d *scheduler.PlanDiff) []diffList {
	return []diffList{
		{"gained", "would start that does not now", d.Gained},
		{"lost", "would not start that does now", d.Lost},
		{"moved", "would start elsewhere or otherwise", d.Moved},
		{"evicted", "would be told to leave", d.Evicted},
		{"spared", "would not be told to leave", d.Spared},
		{"promised", "would have a reserved start", d.Promised},
		{"dropped", "would not have its reserved start", d.Dropped},
	}
}

func (s *server) apiPolicy(w http.ResponseWriter, r *http.Request) error {
	policy, err := s.store.PolicyNow(r.Context())
	if err != nil {
		return err
	}
	history, err := s.store.PolicyHistory(r.Context())
	if err != nil {
		return err
	}
	def := scheduler.DefaultPolicy()
	out := api.Policy{Version: policy.Version, Knobs: []api.PolicyKnob{}, History: []api.PolicyVersion{}}
	for _, k := range scheduler.Knobs() {
		out.Knobs = append(out.Knobs, api.PolicyKnob{
			Name: k.Name, Title: k.Title, Group: k.Group, Unit: string(k.Unit), Value: k.Text(k.Get(&policy)), Default: k.Text(k.Get(&def)), Range: k.Range(), Help: k.Help,
		})
	}
	for i := range history {
		v := &history[i]
		line := api.PolicyVersion{Version: v.Version, At: v.At.Time(), By: v.By, Why: v.Why, Turns: []api.PolicyTurn{}}
		for _, t := range v.Turns {
			line.Turns = append(line.Turns, api.PolicyTurn{Name: t.Knob.Name, From: t.Knob.Text(t.From), To: t.Knob.Text(t.To)})
		}
		out.History = append(out.History, line)
	}
	return writeJSON(w, http.StatusOK, out)
}

// apiSetPolicy previews or saves what some knobs are to be.
func (s *server) apiSetPolicy(w http.ResponseWriter, r *http.Request) error {
	var in api.SetPolicy
	if err := readBody(r, &in); err != nil {
		return err
	}
	known := map[string]bool{}
	for _, k := range scheduler.Knobs() {
		known[k.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(in.Set)) {
		if !known[name] {
			return invalid("set", "policy.unknown", "There is no knob "+name+"; GET the policy for their names.")
		}
	}
	now, err := s.store.PolicyNow(r.Context())
	if err != nil {
		return err
	}
	policy, refusals := turned(now, in.Set)
	if len(refusals) > 0 {
		return refusals
	}
	out := api.PolicyPreview{Turns: turnTexts(&now, &policy), Differences: []api.PolicyDifference{}}
	if in.Preview {
		diff, err := s.store.PolicyPreview(r.Context(), policy)
		if err != nil {
			return err
		}
		for _, l := range diffLists(&diff) {
			d := api.PolicyDifference{Kind: l.id, Text: plural(int64(len(l.lines)), "job") + " " + l.text, Jobs: len(l.lines), First: []ledger.JobID{}}
			for _, line := range l.lines[:min(len(l.lines), mostDiffLines)] {
				d.First = append(d.First, line.Job)
			}
			if d.Jobs > 0 {
				out.Differences = append(out.Differences, d)
			}
		}
		return writeJSON(w, http.StatusOK, out)
	}
	basedOn := in.BasedOn
	if basedOn == 0 {
		basedOn = now.Version
	}
	if out.Saved, err = s.store.SavePolicy(r.Context(), s.apiCommand(r, in.Key), basedOn, policy, in.Why); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, out)
}
