// Package api is Tranche's wire: the JSON of /api/v1 (people and programs) and
// of /agent/v1 (nodes), and a small Go client for both. Times are RFC 3339 in
// UTC, durations whole milliseconds of business time unless a name says real,
// amounts ledger units (3,600,000 per GPU-hour).
package api

// Problem is an RFC 9457 answer (application/problem+json).
type Problem struct {
	Type     string            `json:"type"` // "about:blank" or a page of the manual
	Title    string            `json:"title"`
	Status   int               `json:"status"`
	Detail   string            `json:"detail,omitempty"`
	Instance string            `json:"instance,omitempty"` // request id
	Code     string            `json:"code,omitempty"`     // stable, e.g. "funds.short"
	Fields   []FieldProblem    `json:"fields,omitempty"`
	Facts    map[string]string `json:"facts,omitempty"`
}

// FieldProblem names one wrong field of a form.
type FieldProblem struct {
	Field  string `json:"field"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Error gives the sentence for people.
func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	return p.Title
}
