package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/store/testdb"
)

const hour = ledger.GPUHour

// books are the groups /lab (factor 1.00), /lab/v (given), /lab/v/a, /lab/v/b.
type books struct {
	*Store
	db           *testdb.DB
	lab, v, a, b ledger.GroupID
	lotA, lotB   ledger.Lot
	supply       ledger.Account
	potLab, potV ledger.Account
	period       ledger.PeriodID
}

// newBooks makes the groups and posts: supply 200 → /lab → 100 to /lab/v.
func newBooks(t testing.TB, factorPPM int64) *books {
	t.Helper()
	s, db := newStore(t)
	k := &books{Store: s, db: db, period: 1}
	db.Exec(t, `insert into pools (name, node_gpus, node_cpu_milli, node_ram_mib, created_at) values ('h100', 8, 64000, 512000, '2026-10-01')`)
	db.Exec(t, `insert into persons (issuer, subject, created_at) values ('i', 's', '2026-10-01')`)
	db.Exec(t, `insert into periods (name, first, last, zone) values ('2026-Q4', '2026-10-01', '2027-01-01', 'UTC')`)
	group := func(parent ledger.GroupID, kind, path string, ppm int64) (id ledger.GroupID) {
		err := s.pool.QueryRow(t.Context(), `insert into groups (parent_id, kind, slug, title, path, overcommit_ppm, created_at)
			values (nullif($1::bigint, 0), $2, 'x', $3, $3, $4, $5) returning id`, parent, kind, path, ppm, s.Now()).Scan(&id)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	k.lab = group(0, "program", "/lab", 1_000_000)
	k.v = group(k.lab, "program", "/lab/v", factorPPM)
	k.a, k.b = group(k.v, "project", "/lab/v/a", 1_000_000), group(k.v, "project", "/lab/v/b", 1_000_000)
	lot := func(project ledger.GroupID) ledger.Lot {
		l := ledger.Lot{Project: project, Pool: 1, Period: 1, First: s.Now(), Last: s.Now().Add(90 * 86_400_000)}
		err := s.pool.QueryRow(t.Context(), `insert into lots (project_id, pool_id, period_id, program_id, first, last, amount, created_at)
			values ($1, 1, 1, $2, $3, $4, 0, $3) returning id`, project, k.v, l.First, l.Last).Scan(&l.ID)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	k.lotA, k.lotB = lot(k.a), lot(k.b)
	k.supply, k.potLab, k.potV = ledger.SupplyAccount(1, 1), ledger.PotAccount(k.lab, 1, 1), ledger.PotAccount(k.v, 1, 1)
	k.must(t, k.entry("open:period:1:pool:1", move(k.supply, k.potLab, 200*hour)), k.entry("split:program:1:version:1", move(k.potLab, k.potV, 100*hour)))
	return k
}

func move(debit, credit ledger.Account, amount ledger.Amount) ledger.Transfer {
	return ledger.Transfer{Debit: debit, Credit: credit, Amount: amount}
}

func (k *books) entry(key string, transfers ...ledger.Transfer) ledger.Entry {
	kind := key[:slices.Index([]byte(key), ':')]
	return ledger.Entry{Key: key, Kind: kind, At: k.Now(), Period: k.period, Transfers: transfers}
}

func (k *books) award(project string, lot ledger.Lot, amount ledger.Amount) ledger.Entry {
	return k.entry("award:request:"+project, move(k.potV, lot.Account(ledger.Available), amount))
}

func (k *books) hold(key string, lot ledger.Lot, amount ledger.Amount) ledger.Entry {
	return k.entry("hold:"+key, move(lot.Account(ledger.Available), lot.Account(ledger.Held), amount))
}

func (k *books) post(ctx context.Context, entries ...ledger.Entry) (posted []Posted, err error) {
	err = k.inTx(ctx, "post", func(tx *Tx) error {
		posted, err = post(ctx, tx, entries...)
		return err
	})
	return posted, err
}

func (k *books) must(t testing.TB, entries ...ledger.Entry) []Posted {
	t.Helper()
	posted, err := k.post(t.Context(), entries...)
	if err != nil {
		t.Fatal(err)
	}
	return posted
}

func (k *books) balance(t testing.TB, a ledger.Account) (balance, floor ledger.Amount) {
	t.Helper()
	err := k.Store.pool.QueryRow(t.Context(), `select b.balance, b.floor from balances b join accounts a on a.id = b.account_id
		where (kind, pool_id, period_id, group_id, lot_id) = ($1::smallint, $2::bigint, $3::bigint, $4::bigint, $5::bigint)`, int16(a.Kind), a.Pool, a.Period, a.Group, a.Lot).Scan(&balance, &floor)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, ledger.NewBalance(a).Floor
	}
	if err != nil {
		t.Fatal(err)
	}
	return balance, floor
}

func wantRefusal(t testing.TB, err error, kind ledger.Kind) {
	t.Helper()
	var refusal *ledger.Refusal
	if !errors.As(err, &refusal) || refusal.Kind != kind {
		t.Errorf("got %v, want a refusal of kind %d", err, kind)
	}
}

func TestPostSameEntryTwiceAndOtherContent(t *testing.T) {
	t.Parallel()
	k := newBooks(t, 1_000_000)
	award := k.award("1", k.lotA, 60*hour)
	first := k.must(t, award)
	k.db.Clock.Advance(60e9)
	again := award
	again.At = k.Now()
	hold := k.hold("attempt:1", k.lotA, hour)
	second := k.must(t, again, hold)
	if !first[0].New || second[0].New || second[0].ID != first[0].ID || !second[1].New {
		t.Errorf("first %+v, second %+v", first, second)
	}
	again.Transfers = []ledger.Transfer{move(k.potV, k.lotA.Account(ledger.Available), 61*hour)}
	_, err := k.post(t.Context(), again)
	wantRefusal(t, err, ledger.Conflict)
	if got, _ := k.balance(t, k.lotA.Account(ledger.Available)); got != 59*hour {
		t.Errorf("available %s, want 59", got.Hours())
	}
	_, err = k.post(t.Context(), k.hold("attempt:2", k.lotA, 2*hour), k.award("2", k.lotB, 41*hour))
	wantRefusal(t, err, ledger.Short)
	if got, _ := k.balance(t, k.lotA.Account(ledger.Held)); got != hour {
		t.Errorf("held %s after a refused post, want 1", got.Hours())
	}
}

// L1: 100 GPU-h and two holds of 80 at once: one goes through, 20 are left.
func TestL1TwoHoldsOf80RaceFor100(t *testing.T) {
	t.Parallel()
	k := newBooks(t, 1_000_000)
	k.must(t, k.award("1", k.lotA, 100*hour))
	errs := make([]error, 2)
	var wait sync.WaitGroup
	for i := range errs {
		wait.Go(func() { _, errs[i] = k.post(t.Context(), k.hold(fmt.Sprintf("attempt:%d", i), k.lotA, 80*hour)) })
	}
	wait.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Fatalf("errors %v and %v, want exactly one", errs[0], errs[1])
	}
	wantRefusal(t, errors.Join(errs...), ledger.Short)
	if got, _ := k.balance(t, k.lotA.Account(ledger.Available)); got != 20*hour {
		t.Errorf("available %s, want 20", got.Hours())
	}
}

// L8: a program with 100 and factor 1.6 awards 80 and 80; once A has set aside
// 70, B can have 30; 50 more for the program free 80 for B at once.
func TestL8ProgramOf100Awards160AndLimitsWhatIsUsed(t *testing.T) {
	t.Parallel()
	k := newBooks(t, 1_600_000)
	k.must(t, k.award("a", k.lotA, 80*hour), k.award("b", k.lotB, 80*hour))
	if got, floor := k.balance(t, k.potV); got != -60*hour || floor != -60*hour {
		t.Errorf("pot %s with floor %s, want -60 and -60", got.Hours(), floor.Hours())
	}
	k.must(t, k.hold("a:1", k.lotA, 70*hour))
	_, err := k.post(t.Context(), k.hold("b:1", k.lotB, 40*hour))
	wantRefusal(t, err, ledger.Short)
	limit := func() (received, used ledger.Amount) {
		if err := k.Store.pool.QueryRow(t.Context(), "select received, used from path_limits where program_id = $1", k.v).Scan(&received, &used); err != nil {
			t.Fatal(err)
		}
		return received, used
	}
	if received, used := limit(); received != 100*hour || used != 70*hour {
		t.Errorf("received %s, used %s; want 100 and 70", received.Hours(), used.Hours())
	}
	k.must(t, k.entry("split:program:1:version:2", move(k.potLab, k.potV, 50*hour)))
	k.must(t, k.hold("b:1", k.lotB, 80*hour))
	held, spent := k.lotA.Account(ledger.Held), k.lotA.Account(ledger.Spent)
	k.must(t, k.entry("charge:attempt:1:0ms:1ms", move(held, spent, 30*hour), move(held, k.lotA.Account(ledger.Available), 40*hour)),
		k.entry("credit:attempt:1:node-loss", move(k.lotA.Account(ledger.Credit), k.lotA.Account(ledger.Available), 10*hour)))
	if received, used := limit(); received != 150*hour || used != 100*hour {
		t.Errorf("received %s, used %s; want 150 and 80 + 30 - 10", received.Hours(), used.Hours())
	}
	_, err = k.post(t.Context(), k.entry("split:program:1:version:3", move(k.potV, k.potLab, 60*hour)))
	wantRefusal(t, err, ledger.Short)
}

// Whatever is posted, the database keeps the balances that ledger.Book keeps.
func TestBalancesEqualTheBook(t *testing.T) {
	t.Parallel()
	k := newBooks(t, 1_000_000)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	book := ledger.NewBook(nil)
	for _, e := range []ledger.Entry{
		k.entry("open:period:1:pool:1", move(k.supply, k.potLab, 200*hour)), k.entry("split:program:1:version:1", move(k.potLab, k.potV, 100*hour)),
		k.award("a", k.lotA, 50*hour), k.award("b", k.lotB, 50*hour),
	} {
		if _, err := book.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	k.must(t, k.award("a", k.lotA, 50*hour), k.award("b", k.lotB, 50*hour))
	for i := range 60 {
		lot := []ledger.Lot{k.lotA, k.lotB}[r.IntN(2)]
		kinds := [][2]ledger.AccountKind{{ledger.Available, ledger.Held}, {ledger.Held, ledger.Available}}[r.IntN(2)]
		key := fmt.Sprintf("%s:%d", map[ledger.AccountKind]string{ledger.Available: "hold", ledger.Held: "release"}[kinds[0]], r.IntN(i+1))
		e := k.entry(key, move(lot.Account(kinds[0]), lot.Account(kinds[1]), ledger.Amount(1+r.Int64N(int64(30*hour)))))
		_, refusal := book.Apply(e)
		_, err := k.post(t.Context(), e)
		if (refusal == nil) != (err == nil) {
			t.Fatalf("entry %d: book says %v, database %v", i, refusal, err)
		}
	}
	for _, want := range book.Balances() {
		if got, floor := k.balance(t, want.Account); got != want.Amount || floor != want.Floor {
			t.Errorf("%v: database %d (floor %d), book %d (floor %d)", want.Account, got, floor, want.Amount, want.Floor)
		}
	}
}
