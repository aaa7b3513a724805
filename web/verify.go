package web

import (
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"tranche/store"
	"tranche/web/view"
)

// verifyCommand is the same check without the web.
const verifyCommand = "tranched verify"

// showVerify offers to check the books.
func (s *server) showVerify(w http.ResponseWriter, r *http.Request) error {
	head, err := s.store.SealHead(r.Context())
	if err != nil {
		return err
	}
	answer := "Nothing is sealed yet."
	if head.N > 0 {
		answer = "The newest seal is number " + strconv.FormatInt(head.N, 10) + ", of " + s.clockOrDay(head.At) + "."
	}
	return s.show(w, r, view.VerifyPage(s.shell(r, "Check the books", "verify", answer), view.Verify{Command: verifyCommand, Key: uuid.NewString()}))
}

// runVerify reads the whole books and shows every difference. It changes
// nothing, so its answer needs no redirect: reloading checks again.
func (s *server) runVerify(w http.ResponseWriter, r *http.Request) error {
	began := s.store.Real()
	report, err := s.store.Verify(r.Context())
	if err != nil {
		return err
	}
	took := time.Duration(s.store.Real()-began) * time.Microsecond
	m := view.Verify{
		Ran: true, OK: report.OK(), At: s.when(s.store.Now()), Took: took.Round(time.Millisecond).String(), Facts: verifyFacts(report),
		Command: verifyCommand, Key: uuid.NewString(),
	}
	for _, f := range report.Faults {
		fault := view.VerifyFault{Entry: f.Entry, Text: f.Detail}
		if f.Transfer >= 0 {
			fault.Transfer = strconv.Itoa(f.Transfer)
		}
		m.Faults = append(m.Faults, fault)
	}
	answer := "The books are sound: " + strconv.FormatInt(report.Entries, 10) + " entries, all accounts sum to 0."
	if !m.OK {
		answer = plural(report.FaultsAll, "difference") + " in the books."
	}
	return s.show(w, r, view.VerifyPage(s.shell(r, "Check the books", "verify", answer), m))
}

func verifyFacts(report *store.Report) []view.Fact {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	facts := []view.Fact{
		{Name: "Entries", Value: number(report.Entries), ID: "verify-entries"},
		{Name: "Transfers", Value: number(report.Transfers)},
		{Name: "Accounts", Value: number(report.Accounts)},
		{Name: "Sum of all accounts", Value: number(int64(report.Sum)), ID: "verify-sum"},
		{Name: "Not sealed yet", Value: number(report.Unsealed)},
		{Name: "Differences", Value: number(report.FaultsAll), ID: "verify-faults"},
	}
	if report.Head.N > 0 {
		facts = append(facts, view.Fact{Name: "Seal " + number(report.Head.N), Value: hex.EncodeToString(report.Head.Hash[:8]), Exact: hex.EncodeToString(report.Head.Hash[:])})
	}
	return facts
}
