package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/store/testdb"
)

// institute is a small tree made by commands alone: /lab with program Vision and
// projects Segmentation and Tracking below it, one pool, one open period.
type institute struct {
	*Store
	db                 *testdb.DB
	lab, vision        ledger.GroupID
	seg, track         ledger.GroupID
	h100               ledger.PoolID
	q4                 ledger.PeriodID
	ada, grace, hedy   ledger.PersonID // admin of /lab; managers of /lab/vision
	emmy, mary, nobody ledger.PersonID // PIs of Segmentation and of Tracking; no role
	keys               int
}

func newInstitute(t testing.TB) *institute {
	t.Helper()
	s, db := newStore(t)
	k := &institute{Store: s, db: db}
	var err error
	k.lab, err = s.FoundTree(t.Context(), "lab", "The Lab")
	k.must(t, err)
	k.must(t, s.SetIdentityRoles(t.Context(), []IdentityRole{{Group: "admins", Role: ledger.Admin, Path: "/lab"}}))
	k.ada = k.person(t, "Ada", "admins")
	k.grace, k.hedy, k.emmy, k.mary, k.nobody = k.person(t, "Grace"), k.person(t, "Hedy"), k.person(t, "Emmy"), k.person(t, "Mary"), k.person(t, "Nobody")
	k.vision = k.group(t, k.lab, "Vision", false)
	k.seg, k.track = k.group(t, k.vision, "Segmentation", true), k.group(t, k.vision, "Tracking", true)
	k.grant(t, k.grace, ledger.Manager, k.vision)
	k.grant(t, k.hedy, ledger.Manager, k.vision)
	k.grant(t, k.emmy, ledger.PI, k.seg)
	k.grant(t, k.mary, ledger.PI, k.track)
	k.h100, err = s.CreatePool(t.Context(), k.as(t, k.ada), Pool{Name: "h100", GPUModel: "H100", RatePPM: 1_000_000, NodeGPUs: 8, NodeCPUMilli: 64_000, NodeRAMMiB: 512_000})
	k.must(t, err)
	k.q4, err = s.OpenPeriod(t.Context(), k.as(t, k.ada), PeriodInput{
		Name: "2026-Q4", First: instant("2026-10-01"), Last: instant("2027-01-01"), Zone: "UTC",
		Supplies: []SupplyInput{{Pool: k.h100, Devices: 8, AvailabilityPPM: 950_000, Amount: 1000 * hour}},
	})
	k.must(t, err)
	return k
}

func instant(day string) ledger.Instant {
	at, err := time.Parse(time.DateOnly, day)
	if err != nil {
		panic(err)
	}
	return ledger.At(at)
}

func (k *institute) must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (k *institute) person(t testing.TB, name string, groups ...string) ledger.PersonID {
	t.Helper()
	id, err := k.SignIn(t.Context(), Identity{Issuer: "https://id.test", Subject: name, Name: name, Email: name + "@lab.test", Groups: groups})
	k.must(t, err)
	return id
}

// as is a fresh command of a person.
func (k *institute) as(t testing.TB, person ledger.PersonID) Command {
	t.Helper()
	actor, err := k.Actor(t.Context(), person)
	k.must(t, err)
	k.keys++
	return Command{Actor: actor, Key: fmt.Sprintf("key-%d", k.keys), Remote: "192.0.2.1"}
}

func (k *institute) group(t testing.TB, parent ledger.GroupID, title string, project bool) ledger.GroupID {
	t.Helper()
	id, err := k.CreateGroup(t.Context(), k.as(t, k.ada), GroupInput{Parent: parent, Project: project, Title: title})
	k.must(t, err)
	return id
}

func (k *institute) grant(t testing.TB, person ledger.PersonID, role ledger.Role, group ledger.GroupID) {
	t.Helper()
	k.must(t, k.GrantRole(t.Context(), k.as(t, k.ada), RoleInput{Person: person, Group: group, Role: role}))
}

// split gives children of a program new totals, as a person.
func (k *institute) split(t testing.TB, by ledger.PersonID, program ledger.GroupID, wants ...SplitWant) error {
	t.Helper()
	all, err := k.Pots(t.Context(), program, k.q4)
	k.must(t, err)
	_, err = k.SplitPot(t.Context(), k.as(t, by), SplitCommand{Program: program, Pool: k.h100, Period: k.q4, Version: all[0].Version, Wants: wants})
	return err
}

func (k *institute) pot(t testing.TB, program ledger.GroupID) Pot {
	t.Helper()
	all, err := k.Pots(t.Context(), program, k.q4)
	k.must(t, err)
	return all[0]
}

// ask submits a request of a PI and gives its id.
func (k *institute) ask(t testing.TB, by ledger.PersonID, project ledger.GroupID, amount ledger.Amount) ledger.RequestID {
	t.Helper()
	id, err := k.SaveRequest(t.Context(), k.as(t, by), RequestInput{
		Project: project, Period: k.q4, Purpose: "train", Outcome: "a model", Submit: true,
		Lines: []ledger.RequestLine{{Pool: k.h100, Asked: amount}},
	})
	k.must(t, err)
	return id
}

// decide answers version 1 of a request.
func (k *institute) decide(t testing.TB, cmd Command, id ledger.RequestID, amount ledger.Amount) (ReviewOutcome, error) {
	t.Helper()
	return k.ReviewRequest(t.Context(), cmd, ReviewCommand{Request: id, Decision: ledger.Decision{
		Action: ledger.Award, Version: 1,
		Amounts: []ledger.PoolAmount{{Pool: k.h100, Amount: amount}},
	}})
}

// usable is what a project may use now and the path that limits it.
func (k *institute) usable(t testing.TB, project ledger.GroupID) (ledger.Amount, string) {
	t.Helper()
	list, err := k.UsableBy(t.Context(), []ledger.GroupID{project})
	k.must(t, err)
	if len(list) == 0 {
		return 0, ""
	}
	return list[0].Amount, list[0].LimitedBy
}

// use sets an amount of a project's first lot aside.
func (k *institute) use(t testing.TB, project ledger.GroupID, key string, amount ledger.Amount) error {
	t.Helper()
	st, err := k.Statement(t.Context(), project, 0)
	k.must(t, err)
	lot := st.Lots[0].Lot
	entry := ledger.Entry{
		Key: "hold:" + key, Kind: "hold", At: k.Now(), Period: k.q4,
		Transfers: []ledger.Transfer{move(lot.Account(ledger.Available), lot.Account(ledger.Held), amount)},
	}
	return k.inTx(t.Context(), "use", func(tx *Tx) error {
		_, err := post(t.Context(), tx, entry)
		return err
	})
}

// refused checks that err is a refusal of the kind, and gives the first one.
func refused(t testing.TB, err error, kind ledger.Kind) *ledger.Refusal {
	t.Helper()
	var one *ledger.Refusal
	var many ledger.Refusals
	if errors.As(err, &many) && len(many) > 0 {
		one = many[0]
	} else if !errors.As(err, &one) {
		t.Fatalf("not refused: %v", err)
	}
	if one.Kind != kind {
		t.Errorf("refused with kind %d, want %d: %s", one.Kind, kind, one.Detail)
	}
	return one
}

func (k *institute) count(t testing.TB, query string, args ...any) (n int) {
	t.Helper()
	k.must(t, k.pool.QueryRow(t.Context(), query, args...).Scan(&n))
	return n
}
