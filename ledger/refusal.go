package ledger

// Kind sorts refusals by what a person can do about them.
type Kind int8

// Kinds and their HTTP status.
const (
	Invalid     Kind = iota + 1 // 422
	Denied                      // 403
	Missing                     // 404
	Conflict                    // 409
	Short                       // 409: needed, available, limited by
	Unavailable                 // 503
)

// Refusal is an answer a person can act on. Detail is a full sentence that says
// what to do; Facts carry the numbers (needed, available, limited_by …).
type Refusal struct {
	Kind   Kind
	Code   string // stable, e.g. "funds.short"
	Field  string // form field it belongs to, or ""
	Detail string
	Facts  map[string]string
}

func (r *Refusal) Error() string { return r.Detail }

// Refusals is several at once, as a form check gives.
type Refusals []*Refusal

func (rs Refusals) Error() string {
	s := ""
	for i, r := range rs {
		if i > 0 {
			s += " "
		}
		s += r.Detail
	}
	return s
}
