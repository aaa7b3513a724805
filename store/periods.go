package store

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// PeriodRow is a period with its state.
type PeriodRow struct {
	ledger.Period
	Closed bool
}

const periodColumns = `p.id, p.name, p.first, p.last, p.zone`

func scanPeriod(row pgx.CollectableRow) (ledger.Period, error) {
	var p ledger.Period
	err := row.Scan(&p.ID, &p.Name, &p.First, &p.Last, &p.Zone)
	return p, err
}

// Periods lists all periods, newest first.
func (s *Store) Periods(ctx context.Context) ([]PeriodRow, error) {
	rows, err := s.pool.Query(ctx, `select `+periodColumns+`, p.state = 'closed' from periods p order by p.first desc`)
	if err != nil {
		return nil, fmt.Errorf("store: periods: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (PeriodRow, error) {
		var p PeriodRow
		err := row.Scan(&p.ID, &p.Name, &p.First, &p.Last, &p.Zone, &p.Closed)
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("store: periods: %w", err)
	}
	return out, nil
}

// PeriodAt gives the period an instant lies in; its ID is 0 when there is none.
func (s *Store) PeriodAt(ctx context.Context, at ledger.Instant) (ledger.Period, error) {
	var p ledger.Period
	err := s.readTx(ctx, "period at", func(tx *Tx) error {
		var err error
		p, err = periodAt(ctx, tx, at)
		return err
	})
	return p, err
}

func periodAt(ctx context.Context, tx *Tx, at ledger.Instant) (ledger.Period, error) {
	rows, err := tx.Query(ctx, `select `+periodColumns+` from periods p where p.first <= $1 and p.last > $1`, at)
	if err != nil {
		return ledger.Period{}, err
	}
	p, err := pgx.CollectOneRow(rows, scanPeriod)
	if noRow(err) {
		return ledger.Period{}, nil
	}
	return p, err
}

func periodByID(ctx context.Context, tx *Tx, id ledger.PeriodID) (ledger.Period, error) {
	rows, err := tx.Query(ctx, `select `+periodColumns+` from periods p where p.id = $1`, id)
	if err != nil {
		return ledger.Period{}, err
	}
	p, err := pgx.CollectOneRow(rows, scanPeriod)
	if noRow(err) {
		return p, refuse(ledger.Missing, "period.missing", "period", "There is no such period.")
	}
	return p, err
}

// SupplyRow is what a pool supplies in a period.
type SupplyRow struct {
	Period          ledger.PeriodID
	Pool            ledger.PoolID
	PoolName        string
	Devices         int64
	AvailabilityPPM int64
	Amount          ledger.Amount
}

// Supplies lists the supply of every period, by period and pool name.
func (s *Store) Supplies(ctx context.Context) ([]SupplyRow, error) {
	rows, err := s.pool.Query(ctx, `select y.period_id, y.pool_id, p.name, y.devices, y.availability_ppm, y.amount
		from period_supply y join pools p on p.id = y.pool_id order by y.period_id, p.name`)
	if err != nil {
		return nil, fmt.Errorf("store: supplies: %w", err)
	}
	return collect[SupplyRow]("supplies", rows)
}

// PoolDevices is how many devices of a pool could work.
type PoolDevices struct {
	Pool    ledger.PoolID
	Name    string
	Model   string
	Devices int64 // of nodes that are not retired; cores in CPU-only pools
}

// PoolDevices counts devices per pool, for proposing a supply and for estimates.
func (s *Store) PoolDevices(ctx context.Context) ([]PoolDevices, error) {
	rows, err := s.pool.Query(ctx, `select p.id, p.name, p.gpu_model, coalesce(case when p.node_gpus = 0
			then (select sum(n.cpu_milli) / 1000 from nodes n where n.pool_id = p.id and n.retired_at is null)
			else (select count(*) from devices d join nodes n on n.id = d.node_id where n.pool_id = p.id and n.retired_at is null and not d.dead)
			end, 0)::bigint
		from pools p order by p.name`)
	if err != nil {
		return nil, fmt.Errorf("store: pool devices: %w", err)
	}
	return collect[PoolDevices]("pool devices", rows)
}

// SupplyInput is one pool's supply of a new period. Amount 0 computes it from
// devices and availability.
type SupplyInput struct {
	Pool            ledger.PoolID
	Devices         int64
	AvailabilityPPM int64
	Amount          ledger.Amount
}

// PeriodInput opens a period [First, Last).
type PeriodInput struct {
	Name     string
	First    ledger.Instant
	Last     ledger.Instant
	Zone     string
	Supplies []SupplyInput
}

// OpenPeriod makes a period and brings every pool's supply into the root's pot.
func (s *Store) OpenPeriod(ctx context.Context, cmd Command, in PeriodInput) (ledger.PeriodID, error) {
	return runCommand(ctx, s, "open period", cmd, in, func(tx *Tx) (ledger.PeriodID, error) {
		var root Group
		err := tx.QueryRow(ctx, `select `+groupColumns+` from groups g where g.parent_id is null for share`).Scan(root.fields()...)
		if noRow(err) {
			return 0, refuse(ledger.Missing, "root.missing", "", "Found the tree before opening a period.")
		}
		if err != nil {
			return 0, err
		}
		if r := cmd.Actor.May(ledger.PeriodWrite, root.Path, tx.Now); r != nil {
			return 0, r
		}
		if rs := checkPeriod(in); len(rs) > 0 {
			return 0, rs
		}
		p := ledger.Period{Name: strings.TrimSpace(in.Name), First: in.First, Last: in.Last, Zone: in.Zone}
		err = tx.QueryRow(ctx, `insert into periods (name, first, last, zone, opened_at) values ($1, $2, $3, $4, $5) returning id`,
			p.Name, p.First, p.Last, p.Zone, tx.Now).Scan(&p.ID)
		if err != nil {
			return 0, err
		}
		for _, supply := range in.Supplies {
			if err := openSupply(ctx, tx, cmd, p, root.ID, supply); err != nil {
				return 0, err
			}
		}
		return p.ID, audit(ctx, tx, cmd, act{Verb: "period.open", Subject: subjectOf("period", p.ID), After: in})
	})
}

func checkPeriod(in PeriodInput) ledger.Refusals {
	var rs ledger.Refusals
	if n := utf8.RuneCountInString(strings.TrimSpace(in.Name)); n < 1 || n > 100 {
		rs = append(rs, refuse(ledger.Invalid, "period.name", "name", "Name the period, such as 2026-Q4."))
	}
	if in.Last <= in.First {
		rs = append(rs, refuse(ledger.Invalid, "period.order", "last", "A period ends after it begins."))
	}
	if _, err := time.LoadLocation(in.Zone); err != nil || in.Zone == "" {
		rs = append(rs, refuse(ledger.Invalid, "period.zone", "zone", "Name the accounting zone as in Europe/Berlin."))
	}
	if len(in.Supplies) == 0 {
		rs = append(rs, refuse(ledger.Invalid, "period.supply", "", "Give at least one pool a supply."))
	}
	return rs
}

// openSupply books one pool's supply of a period.
func openSupply(ctx context.Context, tx *Tx, cmd Command, p ledger.Period, root ledger.GroupID, in SupplyInput) error {
	if in.Amount < 0 {
		return refuse(ledger.Invalid, "period.supply", "", "A supply is above 0.")
	}
	if in.Amount == 0 {
		var r *ledger.Refusal
		if in.Amount, r = p.Supply(in.Devices, in.AvailabilityPPM); r != nil {
			return r
		}
	}
	_, err := tx.Exec(ctx, `insert into period_supply (period_id, pool_id, devices, availability_ppm, amount) values ($1, $2, $3, $4, $5)`,
		p.ID, in.Pool, max(1, in.Devices), min(1_000_000, max(1, in.AvailabilityPPM)), int64(in.Amount))
	if err != nil {
		return err
	}
	_, err = post(ctx, tx, ledger.OpenEntry(p, in.Pool, root, in.Amount, tx.Now, cmd.Actor.Person))
	return err
}
