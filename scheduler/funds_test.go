package scheduler

import (
	"testing"

	"tranche/ledger"
)

// overcommitted are two projects with a lot each that promises more than their program
// has left: whatever one of them draws in a cycle the other one sees.
func overcommitted(left ledger.Amount) *Snapshot {
	s := pairWorld()
	s.Usage, s.Waiting = nil, nil
	limit := ledger.PathLimit{Program: 1, Path: "/lab", Pool: 1, Period: 1, Limit: 1000 * ledger.GPUHour, Used: 1000*ledger.GPUHour - left}
	f := s.Funds[0]
	f.Limits = []ledger.PathLimit{limit}
	other := f
	other.Project, other.Path, other.Limits = 3, "/lab/b", []ledger.PathLimit{limit}
	other.Lots = []ledger.Lot{f.Lots[0]}
	other.Lots[0].ID, other.Lots[0].Project = 2, 3
	s.Funds = []ledger.Funds{f, other}
	s.Live[0].Job.Project = 2
	return s
}

func TestStartsOfACycleShareTheirProgramsRest(t *testing.T) {
	s := overcommitted(ledger.GPUHour * 3 / 2)
	s.Live = nil
	s.Waiting = []Job{jobOf(8, 2, 1, 1, 1000, anHour), jobOf(9, 3, 1, 1, 1000, anHour)}
	plan := Decide(s)
	if why := plan.reasonOf(9); plan.startOf(8) == nil || plan.startOf(9) != nil || why.Code != WhyFunds || why.Fact(FactLimitedBy) != "/lab" {
		t.Errorf("starts %+v, job 9: %+v", plan.Starts, why)
	}
}

func TestHoldsThatEndShareTheirProgramsRest(t *testing.T) {
	s := overcommitted(ledger.GPUHour / 3)
	for i := range s.Live {
		s.Live[i].HoldUntilMs = 3 * anHour
	}
	plan := Decide(s)
	if len(plan.Extend) != 1 || plan.Extend[0].Job != 1 || len(plan.MoneyEnds) != 1 || plan.MoneyEnds[0].Job != 2 {
		t.Errorf("extends %+v, money ends %+v", plan.Extend, plan.MoneyEnds)
	}
}

func TestRenewalsShareTheirProgramsRest(t *testing.T) {
	s := overcommitted(ledger.GPUHour)
	for i := range s.Live {
		l := &s.Live[i]
		l.ProtectedUntil, l.HoldUntilMs, l.RenewMs = begun.Add(10*aMinute), 3*anHour+10*aMinute, anHour
	}
	plan := Decide(s)
	if len(plan.Renewals) != 2 || plan.Renewals[0].Refused != nil || codeOf(plan.Renewals[1].Refused) != WhyFunds {
		t.Errorf("renewals %+v", plan.Renewals)
	}
}

func codeOf(r *Reason) string {
	if r == nil {
		return ""
	}
	return r.Code
}
