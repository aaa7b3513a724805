package scheduler

import (
	"strings"
	"testing"

	"tranche/ledger"
)

var plain = Names{
	Group:   func(g ledger.GroupID) string { return map[ledger.GroupID]string{1: "/lab/a", 2: "/lab/b"}[g] },
	Instant: func(i Instant) string { return i.Time().Format("15:04") },
}

func TestEveryCodeHasASentence(t *testing.T) {
	for code := range sentences {
		text := Sentence(&Reason{Code: code, Facts: shapeFacts(&Shape{Nodes: 2, GPUs: 8})}, anHour, plain)
		if strings.ContainsAny(text, "{}[]") || !strings.HasSuffix(text, ".") {
			t.Errorf("%s: %q", code, text)
		}
	}
	for _, r := range []Rule{V1, V2, V3, V5, V5Hard, MaxRuntime, MoneyEnded, Cancelled, Operator, Replan, GangFailed, NodeLost} {
		if text := EvictionSentence(&Evict{Rule: r}, "job 7", anHour, plain); strings.Contains(text, "("+string(r)+").") {
			t.Errorf("%s has no sentence of its own: %q", r, text)
		}
	}
}

func TestSentencesHoldTheNumbers(t *testing.T) {
	for _, c := range []struct {
		r    Reason
		want string
	}{
		{
			Reason{Code: WhyFunds, Facts: []Fact{{FactNeeded, "80"}, {FactShort, "60"}, {FactLimitedBy, "/lab/vision"}}},
			"60 GPU-h short of the 80 GPU-h that must be set aside before it starts, limited by /lab/vision.",
		},
		{
			Reason{Code: WhyFunds, Facts: []Fact{{FactNeeded, "80"}, {FactShort, "60"}}},
			"60 GPU-h short of the 80 GPU-h that must be set aside before it starts.",
		},
		{
			Reason{Code: WhyProtected, Rank: 4, Facts: []Fact{
				{FactGPUs, "8"}, {FactWant, "2"}, {FactFree, "1"}, {FactNodes, "4"}, {FactRejected + FitsDevices, "2"}, {FactRejected + FitsHealth, "1"}, {FactUntil, "1790812800000000"},
			}},
			"Waits for 2 nodes with 8 free GPUs each: only 1 of the 4 nodes has them (2 lack GPUs, 1 lacks health), and what runs there is protected until about 00:00. 3 jobs of the pool went before it in this cycle.",
		},
		{
			Reason{Code: WhyStanding, Facts: []Fact{{FactGPUs, "1"}, {FactWant, "1"}, {FactFree, "0"}, {FactNodes, "1"}}, Path: []Standing{{Group: 1, Usage: 1_500_000 * 3_600, MicroGPU: 1_000_000}}},
			"Waits for a node with 1 free GPU: none of the 1 node has them, and nobody past protection has had more of its share. Its project /lab/a has had 1.50 × its share.",
		},
	} {
		if got := Sentence(&c.r, anHour, plain); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestTimesOfAShare(t *testing.T) {
	for want, s := range map[string]Standing{
		"no share": {Usage: 5},
		"0.00":     {MicroGPU: 1_000_000},
		"0.0125":   {MicroGPU: 8_000_000, Usage: 1000 * anHour / 10},
		"1.40":     {MicroGPU: 2_000_000, Usage: 2000 * anHour, Commitment: 800 * anHour},
	} {
		if got := s.Times(anHour); got != want {
			t.Errorf("%+v is %s, want %s", s, got, want)
		}
	}
}

func TestStandingsAreToldApart(t *testing.T) {
	for _, c := range []struct {
		a, b         GPUTime
		wantA, wantB string
	}{
		{1400 * anHour, 900 * anHour, "1.40", "0.90"},
		{1_400_000 * 3600, 1_400_001 * 3600, "1.400000", "1.400001"},
		{12_345_600, 12_345_700, "0.00342933", "0.00342936"},
		{5, 5, "0.00", "0.00"},
	} {
		a, b := TimesApart(&Standing{Usage: c.a, MicroGPU: 1_000_000}, &Standing{Usage: c.b, MicroGPU: 1_000_000}, anHour)
		if a != c.wantA || b != c.wantB {
			t.Errorf("%d and %d are %s and %s, want %s and %s", c.a, c.b, a, b, c.wantA, c.wantB)
		}
	}
}
