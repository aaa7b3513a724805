package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Scenario is a parsed text: what the world is, then what happens and what is
// expected, in order of time.
type Scenario struct {
	Setup []Statement
	Steps []Step
}

// Step is one line with an instant: commands, then expectations.
type Step struct {
	Line   int
	AtMs   int64 // since the scenario's start
	Do     []Statement
	Expect []Statement
}

// Statement is a verb with its words and its key=value options.
type Statement struct {
	Line int
	Verb string
	Args []string
	Opts map[string]string
}

// The verbs that begin a statement, by where they may stand.
var (
	setupVerbs  = map[string]bool{"policy": true, "pool": true, "program": true, "project": true, "node": true}
	doVerbs     = map[string]bool{"submit": true, "cycle": true, "cycles": true, "finish": true, "cancel": true, "pause": true, "resume": true, "fail-node": true, "drain": true, "fault": true, "silent": true, "heal": true, "suspend": true, "lift": true, "award": true, "freeze": true, "thaw": true, "maintain": true, "leader": true, "kill-device": true, "renew": true, "idle": true, "member": true, "book": true, "learn": true}
	expectVerbs = map[string]bool{"start": true, "nominate": true, "evict": true, "wait": true, "promote": true, "reserve": true, "move": true, "promised": true, "renewed": true, "warn": true, "unprotect": true, "stop": true, "extend": true, "money": true, "order": true, "nothing": true, "charge": true, "balance": true, "held": true, "spent": true, "state": true, "usage": true, "attempts": true, "seq": true}
)

// Parse reads a scenario. Lines: setup statements; or an instant ("2h",
// "3h59m59.999s", "8d") with commands and, after "->", expectations; or "->"
// alone, which goes on with the last instant's expectations. "#" begins a
// comment. Errors name the line.
func Parse(text string) (*Scenario, error) {
	sc := &Scenario{}
	lines := strings.Split(text, "\n")
	if len(lines) > 100_000 {
		return nil, fmt.Errorf("a scenario has at most 100000 lines")
	}
	for i, raw := range lines {
		words, _, _ := strings.Cut(raw, "#")
		if err := sc.line(i+1, strings.Fields(words)); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return sc, nil
}

func (sc *Scenario) line(n int, words []string) error {
	if len(words) == 0 {
		return nil
	}
	if words[0] == "->" && len(sc.Steps) > 0 {
		last := &sc.Steps[len(sc.Steps)-1]
		more, err := statements(n, words[1:], expectVerbs)
		last.Expect = append(last.Expect, more...)
		return err
	}
	if c := words[0][0]; c < '0' || c > '9' {
		more, err := statements(n, words, setupVerbs)
		if err == nil && len(sc.Steps) > 0 {
			return fmt.Errorf("%q must stand before the first instant", words[0])
		}
		sc.Setup = append(sc.Setup, more...)
		return err
	}
	at, err := Duration(words[0])
	if err != nil {
		return err
	}
	if k := len(sc.Steps); k > 0 && at < sc.Steps[k-1].AtMs {
		return fmt.Errorf("%s is before line %d", words[0], sc.Steps[k-1].Line)
	}
	step := Step{Line: n, AtMs: at}
	do, expect := words[1:], []string(nil)
	for k, word := range do {
		if word == "->" {
			do, expect = words[1:k+1], words[k+2:]
			break
		}
	}
	if step.Do, err = statements(n, do, doVerbs); err != nil {
		return err
	}
	if step.Expect, err = statements(n, expect, expectVerbs); err != nil {
		return err
	}
	sc.Steps = append(sc.Steps, step)
	return nil
}

// statements cuts words at the verbs that may begin one.
func statements(line int, words []string, verbs map[string]bool) ([]Statement, error) {
	var out []Statement
	for _, word := range words {
		key, value, isOpt := strings.Cut(word, "=")
		switch {
		case verbs[word]:
			out = append(out, Statement{Line: line, Verb: word, Opts: map[string]string{}})
		case len(out) == 0:
			return nil, fmt.Errorf("%q is no word that may begin here", word)
		case isOpt && key != "":
			out[len(out)-1].Opts[key] = value
		default:
			out[len(out)-1].Args = append(out[len(out)-1].Args, word)
		}
	}
	return out, nil
}

// Duration reads "90s", "1h30m", "3h59m59.999s", "8d", "2d12h" as milliseconds.
func Duration(text string) (int64, error) {
	days, rest := int64(0), text
	if head, tail, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseInt(head, 10, 32)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("%q is no duration", text)
		}
		days, rest = n, tail
	}
	if rest == "" || rest == "0" {
		return days * 86_400_000, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no duration", text)
	}
	return days*86_400_000 + d.Milliseconds(), nil
}

// names expands "n1..n4" to n1, n2, n3, n4.
func names(word string) ([]string, error) {
	from, to, ok := strings.Cut(word, "..")
	if !ok {
		return []string{word}, nil
	}
	stem := strings.TrimRight(from, "0123456789")
	first, err1 := strconv.Atoi(from[len(stem):])
	last, err2 := strconv.Atoi(strings.TrimPrefix(to, stem))
	if err1 != nil || err2 != nil || last < first || last-first > 100_000 {
		return nil, fmt.Errorf("%q is no range like n1..n4", word)
	}
	out := make([]string, 0, last-first+1)
	for i := first; i <= last; i++ {
		out = append(out, stem+strconv.Itoa(i))
	}
	return out, nil
}

// options reads a statement's options and says which are
// unknown.
type options struct {
	st   *Statement
	used map[string]bool
	err  error
}

func (st *Statement) options() *options { return &options{st: st, used: map[string]bool{}} }

func (o *options) text(key, otherwise string) string {
	o.used[key] = true
	if v, ok := o.st.Opts[key]; ok {
		return v
	}
	return otherwise
}

func (o *options) has(key string) bool {
	_, ok := o.st.Opts[key]
	return ok
}

func (o *options) number(key string, otherwise int64) int64 {
	v := o.text(key, "")
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		o.fail("%s=%q is no number", key, v)
	}
	return n
}

func (o *options) duration(key string, otherwise int64) int64 {
	v := o.text(key, "")
	if v == "" {
		return otherwise
	}
	ms, err := Duration(v)
	if err != nil {
		o.fail("%s: %v", key, err)
	}
	return ms
}

func (o *options) flag(key string, otherwise bool) bool {
	switch v := o.text(key, ""); v {
	case "":
		return otherwise
	case "yes":
		return true
	case "no":
		return false
	default:
		o.fail("%s=%q must be yes or no", key, v)
		return false
	}
}

func (o *options) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(format, args...)
	}
}

// done says what went wrong, also that an option is unknown.
func (o *options) done() error {
	if o.err != nil {
		return o.err
	}
	for key := range o.st.Opts {
		if !o.used[key] {
			return fmt.Errorf("%s has no option %q", o.st.Verb, key)
		}
	}
	return nil
}
