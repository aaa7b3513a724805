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

// Status is the HTTP status of a kind.
func (k Kind) Status() int {
	switch k {
	case Invalid:
		return 422
	case Denied:
		return 403
	case Missing:
		return 404
	case Conflict, Short:
		return 409
	case Unavailable:
		return 503
	}
	return 500
}

// refuse makes a refusal; facts are name-value pairs.
func refuse(kind Kind, code, field, detail string, facts ...string) *Refusal {
	r := &Refusal{Kind: kind, Code: code, Field: field, Detail: detail}
	for i := 0; i+1 < len(facts); i += 2 {
		if r.Facts == nil {
			r.Facts = map[string]string{}
		}
		r.Facts[facts[i]] = facts[i+1]
	}
	return r
}
