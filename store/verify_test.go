package store

import (
	"slices"
	"strings"
	"testing"

	"tranche/ledger"
)

// sealedBooks are books with overcommit in which everything has happened once.
func sealedBooks(t *testing.T) (*books, *Leader) {
	t.Helper()
	k := newBooks(t, 1_600_000)
	leader, err := k.Campaign(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	sealAll(t, leader, 2)
	k.must(t, k.award("a", k.lotA, 80*hour), k.award("b", k.lotB, 80*hour))
	sealAll(t, leader, 2)
	held := k.lotA.Account(ledger.Held)
	k.must(t, k.hold("attempt:1", k.lotA, 10*hour))
	k.must(t, k.entry("charge:attempt:1:0ms:3600000ms", move(held, k.lotA.Account(ledger.Spent), 8*hour), move(held, k.lotA.Account(ledger.Available), 2*hour)))
	sealAll(t, leader, 2)
	return k, leader
}

// sealAll seals until want entries are covered: transactions of other tests'
// databases, which share the cluster's numbers, may delay that.
func sealAll(t *testing.T, leader *Leader, want int64) {
	t.Helper()
	for sealed := int64(0); sealed < want; {
		n, err := leader.Seal(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if sealed += n; sealed > want {
			t.Fatalf("sealed %d entries, want %d", sealed, want)
		}
	}
	if n, err := leader.Seal(t.Context()); n != 0 || err != nil {
		t.Fatalf("sealed %d entries twice (%v)", n, err)
	}
}

func (k *books) verify(t *testing.T, anchors ...Anchor) *Report {
	t.Helper()
	report, err := k.Verify(t.Context(), anchors...)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestVerifyFindsSoundBooksSound(t *testing.T) {
	t.Parallel()
	k, _ := sealedBooks(t)
	head, err := k.SealHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k.must(t, k.entry("split:program:1:version:9", move(k.potLab, k.potV, hour)))
	r := k.verify(t, Anchor{head.N, head.Hash})
	if !r.OK() || r.Entries != 7 || r.Transfers != 8 || r.Unsealed != 1 || r.Head.N != head.N || r.Sum != 0 {
		t.Errorf("report %+v", r)
	}
	r = k.verify(t, Anchor{head.N, [32]byte{1}})
	if r.OK() || !strings.Contains(r.Faults[0].Detail, "is not the one of the anchor") {
		t.Errorf("foreign anchor: %v", r.Faults)
	}
}

// What a superuser changes, verify names: exactly that place, nothing else.
func TestVerifyNamesWhatASuperuserChanged(t *testing.T) {
	t.Parallel()
	charge := `entry_id = (select id from entries where key = 'charge:attempt:1:0ms:3600000ms')`
	for name, c := range map[string]struct {
		sql  []string
		want []string
	}{
		"one byte of a transfer's amount": {
			[]string{`update transfers set amount = amount # 1 where n = 1 and ` + charge},
			[]string{"entry charge:attempt:1:0ms:3600000ms, transfer 1: its content does not fit its hash"},
		},
		"a transfer's hash": {
			[]string{`update transfers set hash = set_byte(hash, 0, get_byte(hash, 0) # 1) where n = 0 and ` + charge},
			[]string{"entry charge:attempt:1:0ms:3600000ms, transfer 0: its content does not fit its hash"},
		},
		"an entry's instant": {
			[]string{`update entries set at = at + interval '1 us' where key = 'award:request:a'`},
			[]string{"entry award:request:a: its content does not fit its hash"},
		},
		"a lost transfer": {
			[]string{`delete from transfers where n = 1 and ` + charge},
			[]string{"entry charge:attempt:1:0ms:3600000ms: its content does not fit its hash", "the balance of available"},
		},
		"a lost entry": {
			[]string{`delete from transfers where ` + charge, `delete from entries where key like 'charge:%'`},
			[]string{"the balance of available", "the balance of held", "the balance of spent", "seal "},
		},
		"a piece of a hold": {
			[]string{`with j as (insert into jobs (project_id, pool_id, member_id, nodes, gpus, cpu_milli, ram_mib, milli_gpu, rate_ppm, min_ms, grace_ms, max_ms, resumable, stop_on_money, or_free, queue_seq, state, submitted_at)
					select 3, 1, id, 1, 1, 1, 1, 1, 1, 0, 0, 1, true, true, true, 1, 'live', created_at from persons returning id, submitted_at),
				a as (insert into attempts (job_id, n, project_id, pool_id, phase, funded, milli_gpu, occupied_milli, rate_ppm, min_ms, since) select id, 1, 3, 1, 'running', true, 1, 1, 1, 0, submitted_at from j returning id)
				insert into hold_pieces (attempt_id, n, lot_id, amount) select a.id, 0, lots.id, 7 from a, lots where lots.project_id = 3`},
			[]string{"lot 1 has 0 units set aside, its attempts hold 7"},
		},
		"a balance": {
			[]string{`update balances set balance = balance + 1 where account_id = (select min(account_id) from balances where balance > 0)`},
			[]string{"the balance of pot pool=1 period=1 group=1 lot=0 is 360000001 units, its transfers give 360000000", "all balances add up to 1 units"},
		},
		"a path counter": {
			[]string{`update path_limits set used = used + 1`},
			[]string{"the counter of /lab/v (pool 1, period 1) has received 360000000 and used 28800001 units"},
		},
		"a seal": {
			[]string{`update seals set hash = set_byte(hash, 31, get_byte(hash, 31) # 1) where n = 1`},
			[]string{"seal 1 does not fit", "seal 2 does not continue seal 1"},
		},
		"entry and hashes rewritten": {
			[]string{`update entries set hash = sha256('x') where key = 'award:request:b'`},
			[]string{"entry award:request:b: its content", "seal "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, _ := sealedBooks(t)
			for _, sql := range c.sql {
				k.db.Exec(t, sql)
			}
			r := k.verify(t)
			var got []string
			for _, f := range r.Faults {
				got = append(got, f.String())
			}
			if len(got) != len(c.want) || slices.ContainsFunc(c.want, func(w string) bool {
				return !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, w) })
			}) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// An entry with a lower id that commits after a seal is in the next one.
func TestSealWaitsForOpenTransactions(t *testing.T) {
	t.Parallel()
	k := newBooks(t, 1_000_000)
	leader, err := k.Campaign(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	k.must(t, k.award("a", k.lotA, 40*hour), k.award("b", k.lotB, 40*hour))
	sealAll(t, leader, 4)
	err = k.inTx(t.Context(), "slow", func(tx *Tx) error {
		if _, err := post(t.Context(), tx, k.hold("attempt:8", k.lotA, hour)); err != nil {
			return err
		}
		k.must(t, k.hold("attempt:9", k.lotB, hour)) // commits first, with the higher id
		n, err := leader.Seal(t.Context())
		if n != 0 {
			t.Errorf("sealed %d entries while an older transaction was open", n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	sealAll(t, leader, 2)
	r := k.verify(t)
	if r.Unsealed != 0 || slices.ContainsFunc(r.Faults, func(f Fault) bool { return strings.HasPrefix(f.Detail, "seal") }) {
		t.Errorf("report %+v", r)
	}
}
