package view

import "tranche/ledger"

// Num is a number for people: Text as set on the page, Exact as shown on hover
// and put into copies. The unit stands in the column head, not here.
type Num struct{ Text, Exact string }

// When is an instant for people: Text relative in lists ("3 min ago"), Exact
// with its zone ("2026-11-30 14:20:05 CET").
type When struct{ Text, Exact string }

// Link is text that leads somewhere.
type Link struct{ Text, URL string }

// Option is one choice of a select: Value is posted, Text is shown.
type Option struct{ Value, Text string }

// Fact is one named value in a definition list.
type Fact struct {
	Name  string
	Value string
	Exact string // on hover, or ""
	Term  string // glossary word that explains Name, or ""
	ID    string // data-testid of the value, or ""
}

// Pager leads to the page before and after; an empty address hides its link.
type Pager struct {
	Newer, Older string
	Back, Forth  string // what the links say; empty: Newer and Older
	Shown        string // "50 of more", "12 of 12"
}

// Form is what a form keeps between two tries: where it posts, the typed values
// and what was refused. Values takes a url.Values as it is.
type Form struct {
	Key      string // idempotency key, posted as "key"
	Values   map[string][]string
	Refusals ledger.Refusals
	Next     []Link // what else could be done about the refusals
	// scope sets a second form's fields on the same page apart from the first's.
	scope string
}

// id is the id of a field's input, which refusals link to.
func (f Form) id(field string) string { return "f-" + f.scope + field }

// testID is the data-testid of a field's input.
func (f Form) testID(field string) string {
	if f.scope != "" {
		return f.scope + field
	}
	return "field-" + field
}

// Value is the first typed value of a field, or "".
func (f Form) Value(field string) string {
	if v := f.Values[field]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// Refused is the first refusal of a field, or nil.
func (f Form) Refused(field string) *ledger.Refusal {
	for _, r := range f.Refusals {
		if r.Field == field {
			return r
		}
	}
	return nil
}
