package store

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// Pot is a program's pot of one pool and period.
type Pot struct {
	Pool       ledger.PoolID
	PoolName   string
	Period     ledger.PeriodID
	Received   ledger.Amount
	ToPrograms ledger.Amount // split to programs below
	ToProjects ledger.Amount // awarded or split to projects
	Left       ledger.Amount // what can still be handed out; with overcommit more than the balance
	Balance    ledger.Amount
	Version    int64 // of the newest split; 0: none yet
}

// Pots lists a program's pots of a period, by pool name.
func (s *Store) Pots(ctx context.Context, program ledger.GroupID, period ledger.PeriodID) ([]Pot, error) {
	var out []Pot
	err := s.readTx(ctx, "pots", func(tx *Tx) error {
		var err error
		out, err = pots(ctx, tx, program, period)
		return err
	})
	return out, err
}

func pots(ctx context.Context, tx *Tx, program ledger.GroupID, period ledger.PeriodID) ([]Pot, error) {
	rows, err := tx.Query(ctx, `select y.pool_id, p.name, y.period_id, coalesce(r.received, 0),
			coalesce((select sum(c.received) from (`+sqlReceived+`) c join groups g on g.id = c.group_id
				where g.parent_id = $1 and c.pool_id = y.pool_id and c.period_id = y.period_id), 0)::bigint,
			coalesce((select sum(l.amount) from lots l where l.program_id = $1 and l.pool_id = y.pool_id and l.period_id = y.period_id), 0)::bigint,
			coalesce(b.balance - b.floor, 0), coalesce(b.balance, 0),
			coalesce((select max(version) from splits s where (s.program_id, s.pool_id, s.period_id) = ($1, y.pool_id, y.period_id)), 0)
		from period_supply y join pools p on p.id = y.pool_id
		left join (`+sqlReceived+`) r on (r.group_id, r.pool_id, r.period_id) = ($1, y.pool_id, y.period_id)
		left join accounts a on (a.kind, a.pool_id, a.period_id, a.group_id, a.lot_id) = ($3::smallint, y.pool_id, y.period_id, $1, 0)
		left join balances b on b.account_id = a.id
		where y.period_id = $2 order by p.name`, int64(program), int64(period), int16(ledger.Pot))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Pot])
}

// SplitPart is what one child has from a program's pot.
type SplitPart struct {
	Child   ledger.GroupID
	Title   string
	Path    string
	Project bool
	PPM     int64 // as it was given; 0 when given in GPU-hours
	Amount  ledger.Amount
	Floor   ledger.Amount // spent, set aside or given on: it cannot go below
	lot     ledger.LotID  // of a project's split
	balance ledger.Amount
}

// Splits lists every living child of a program with its part of one pot.
func (s *Store) Splits(ctx context.Context, program ledger.GroupID, pool ledger.PoolID, period ledger.PeriodID) ([]SplitPart, error) {
	var out []SplitPart
	err := s.readTx(ctx, "splits", func(tx *Tx) error {
		var err error
		out, err = splitParts(ctx, tx, program, pool, period)
		return err
	})
	return out, err
}

// splitParts reads the newest split, children by title. The balance is what a
// decrease may take back: a program's pot, or a project's split lot.
func splitParts(ctx context.Context, tx *Tx, program ledger.GroupID, pool ledger.PoolID, period ledger.PeriodID) ([]SplitPart, error) {
	rows, err := tx.Query(ctx, `select g.id, g.title, g.path, g.kind = 'project', coalesce(sp.ppm, 0), coalesce(sp.amount, 0), coalesce(l.id, 0), coalesce(b.balance, 0)
		from groups g
		left join splits s on s.program_id = $1 and s.pool_id = $2 and s.period_id = $3 and s.version = (
			select max(n.version) from splits n where (n.program_id, n.pool_id, n.period_id) = ($1, $2, $3))
		left join split_parts sp on sp.split_id = s.id and sp.child_id = g.id
		left join lots l on l.project_id = g.id and l.pool_id = $2 and l.period_id = $3 and l.program_id = $1 and l.kind = 'split'
		left join accounts a on (a.kind, a.pool_id, a.period_id, a.group_id, a.lot_id) =
			(case when g.kind = 'project' then $4::smallint else $5::smallint end, $2, $3, g.id, coalesce(l.id, 0))
		left join balances b on b.account_id = a.id
		where g.parent_id = $1 and (g.archived_at is null or sp.amount > 0) order by g.title, g.id`,
		int64(program), int64(pool), int64(period), int16(ledger.Available), int16(ledger.Pot))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (SplitPart, error) {
		var p SplitPart
		err := row.Scan(&p.Child, &p.Title, &p.Path, &p.Project, &p.PPM, &p.Amount, &p.lot, &p.balance)
		p.Floor = p.Amount - min(p.Amount, max(0, p.balance))
		return p, err
	})
}

// SplitWant is what one child is to have: PPM of the pot, or an amount.
type SplitWant struct {
	Child  ledger.GroupID
	ByPPM  bool
	PPM    int64
	Amount ledger.Amount
}

// SplitCommand divides a program's pot of one pool and period. Version is the one
// that was read. Children that are not named keep what they have.
type SplitCommand struct {
	Program ledger.GroupID
	Pool    ledger.PoolID
	Period  ledger.PeriodID
	Version int64
	Wants   []SplitWant
}

// SplitPot makes a new version of a split and moves the difference. It gives the
// new version's number.
func (s *Store) SplitPot(ctx context.Context, cmd Command, in SplitCommand) (int64, error) {
	return runCommand(ctx, s, "split pot", cmd, in, func(tx *Tx) (int64, error) {
		program, err := lockGroup(ctx, tx, in.Program)
		if err != nil {
			return 0, err
		}
		period, err := periodByID(ctx, tx, in.Period)
		if err != nil {
			return 0, err
		}
		if period.Last <= tx.Now {
			return 0, refuse(ledger.Conflict, "split.period_over", "", "Period "+period.Name+" is over, so its pots cannot be split any more.")
		}
		pot, err := potOf(ctx, tx, in)
		if err != nil {
			return 0, err
		}
		parts, err := splitParts(ctx, tx, in.Program, in.Pool, in.Period)
		if err != nil {
			return 0, err
		}
		children, rs := splitChildren(in, parts)
		if len(rs) > 0 {
			return 0, rs
		}
		if err := ensureSplitLots(ctx, tx, in, period, children, parts); err != nil {
			return 0, err
		}
		entry, amounts, rs := ledger.Split(ledger.SplitInput{
			Program: program.ID, Path: program.Path, Pool: in.Pool, Period: in.Period,
			Received: pot.Received, Balance: pot.Balance, FactorPPM: program.OvercommitPPM, Children: children,
			Version: in.Version, Latest: pot.Version, Actor: cmd.Actor, Now: tx.Now,
		})
		if len(rs) > 0 {
			return 0, rs
		}
		if len(entry.Transfers) > 0 {
			if _, err := post(ctx, tx, entry); err != nil {
				return 0, err
			}
		}
		tx.Notify("tranche_cycle")
		return pot.Version + 1, writeSplit(ctx, tx, cmd, in, pot.Version+1, parts, children, amounts)
	})
}

// potOf reads one pot; a pool without supply is refused.
func potOf(ctx context.Context, tx *Tx, in SplitCommand) (Pot, error) {
	all, err := pots(ctx, tx, in.Program, in.Period)
	if err != nil {
		return Pot{}, err
	}
	for _, p := range all {
		if p.Pool == in.Pool {
			return p, nil
		}
	}
	return Pot{}, refuse(ledger.Invalid, "split.pool", "pool", "This pool has no supply in the period.")
}

// splitChildren matches what is wanted with the children there are.
func splitChildren(in SplitCommand, parts []SplitPart) ([]ledger.SplitChild, ledger.Refusals) {
	var rs ledger.Refusals
	var out []ledger.SplitChild
	for _, w := range in.Wants {
		i := slices.IndexFunc(parts, func(p SplitPart) bool { return p.Child == w.Child })
		if i < 0 {
			rs = append(rs, refuse(ledger.Invalid, "split.child", ledger.SplitField(w.Child), "This group is not directly below the program."))
			continue
		}
		p := parts[i]
		c := ledger.SplitChild{
			Group: p.Child, Path: p.Path, Account: ledger.PotAccount(p.Child, in.Pool, in.Period),
			Now: p.Amount, Balance: p.balance, ByPPM: w.ByPPM, PPM: w.PPM, Want: w.Amount,
		}
		if p.Project {
			c.Account = splitLot(in, p.Child, p.lot).Account(ledger.Available)
		}
		out = append(out, c)
	}
	return out, rs
}

func splitLot(in SplitCommand, project ledger.GroupID, id ledger.LotID) ledger.Lot {
	return ledger.Lot{ID: id, Project: project, Pool: in.Pool, Period: in.Period}
}

// ensureSplitLots gives every named project that has none its lot, empty so far,
// usable from the period's start, or from now when it has begun.
func ensureSplitLots(ctx context.Context, tx *Tx, in SplitCommand, period ledger.Period, children []ledger.SplitChild, parts []SplitPart) error {
	for i := range children {
		c := &children[i]
		part := parts[slices.IndexFunc(parts, func(p SplitPart) bool { return p.Child == c.Group })]
		if !part.Project || part.lot != 0 || (c.Want <= 0 && c.PPM <= 0) {
			continue
		}
		var id ledger.LotID
		err := tx.QueryRow(ctx, `insert into lots (project_id, pool_id, period_id, program_id, first, last, amount, kind, created_at)
			values ($1, $2, $3, $4, $5, $6, 0, 'split', $7) returning id`,
			c.Group, in.Pool, in.Period, in.Program, max(period.First, tx.Now), period.Last, tx.Now).Scan(&id)
		if err != nil {
			return err
		}
		c.Account = splitLot(in, c.Group, id).Account(ledger.Available)
	}
	return nil
}

// writeSplit keeps the version: named children with their new parts, the others
// as they were.
func writeSplit(ctx context.Context, tx *Tx, cmd Command, in SplitCommand, version int64, parts []SplitPart, children []ledger.SplitChild, amounts []ledger.SplitAmount) error {
	var id int64
	err := tx.QueryRow(ctx, `insert into splits (program_id, pool_id, period_id, version, made_by, made_at) values ($1, $2, $3, $4, $5, $6) returning id`,
		in.Program, in.Pool, in.Period, version, cmd.Actor.Person, tx.Now).Scan(&id)
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	before, after := map[string]string{}, map[string]string{}
	for _, p := range parts {
		amount, ppm := p.Amount, p.PPM
		if i := slices.IndexFunc(children, func(c ledger.SplitChild) bool { return c.Group == p.Child }); i >= 0 {
			amount, ppm = amounts[i].After, 0
			if children[i].ByPPM {
				ppm = children[i].PPM
			}
			if lot := children[i].Account.Lot; lot != 0 {
				batch.Queue(`update lots set amount = $2 where id = $1`, lot, int64(amount))
			}
			before[p.Path], after[p.Path] = p.Amount.Exact(), amount.Exact()
		}
		batch.Queue(`insert into split_parts (split_id, child_id, ppm, amount) values ($1, $2, nullif($3::bigint, 0), $4)`, id, p.Child, ppm, int64(amount))
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	return audit(ctx, tx, cmd, act{
		Verb: "split.write", Subject: subjectOf("group", in.Program), Before: before,
		After: map[string]any{"pool": in.Pool, "period": in.Period, "version": version, "gpu_hours": after},
	})
}

// SetOvercommit lets a program hand out more than it received: factorPPM of it.
// What its projects may have spent and held together stays within what it
// received. A lower factor is refused while more is handed out than it allows.
func (s *Store) SetOvercommit(ctx context.Context, cmd Command, program ledger.GroupID, factorPPM int64) error {
	return s.changeGroup(ctx, cmd, "overcommit", program, factorPPM, func(tx *Tx, g Group) (any, error) {
		if factorPPM < 1_000_000 || factorPPM > 10_000_000 {
			return nil, refuse(ledger.Invalid, "group.overcommit", "overcommit", "An overcommit factor lies between 1.00 and 10.00.")
		}
		if g.Project {
			return nil, refuse(ledger.Invalid, "group.overcommit", "overcommit", "Only programs hand out budget.")
		}
		if err := lockLotsBelow(ctx, tx, g); err != nil {
			return nil, err
		}
		if _, err := tx.Exec(ctx, `update groups set overcommit_ppm = $2 where id = $1`, g.ID, factorPPM); err != nil {
			return nil, err
		}
		if err := setPotFloors(ctx, tx, g, factorPPM); err != nil {
			return nil, err
		}
		tx.Notify("tranche_cycle")
		return map[string]any{"overcommit_ppm": factorPPM}, countUsedBelow(ctx, tx, g, factorPPM)
	})
}

// lockLotsBelow keeps holds and charges of the projects below from being posted
// while the counters are made: posting locks the same rows first.
func lockLotsBelow(ctx context.Context, tx *Tx, g Group) error {
	_, err := tx.Exec(ctx, `select from balances b where b.account_id in (
			select a.id from accounts a join groups p on p.id = a.group_id
			where a.lot_id <> 0 and a.kind in ($2, $3) and starts_with(p.path, $1 || '/')
			union all select a.id from accounts a where a.kind = $4 and a.group_id = $5)
		order by b.account_id for update`, g.Path, int16(ledger.Available), int16(ledger.Held), int16(ledger.Pot), g.ID)
	return err
}

// setPotFloors moves the floors of the program's pots to the new factor.
func setPotFloors(ctx context.Context, tx *Tx, g Group, factorPPM int64) error {
	rows, err := tx.Query(ctx, `select r.received, b.balance, b.account_id from (`+sqlReceived+`) r
		join accounts a on (a.kind, a.pool_id, a.period_id, a.group_id, a.lot_id) = ($2::smallint, r.pool_id, r.period_id, r.group_id, 0)
		join balances b on b.account_id = a.id where r.group_id = $1 order by b.account_id`, g.ID, int16(ledger.Pot))
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	var received, balance ledger.Amount
	var account int64
	var short ledger.Amount
	_, err = pgx.ForEachRow(rows, []any{&received, &balance, &account}, func() error {
		floor := ledger.PotFloor(received, factorPPM)
		short = max(short, floor-balance)
		batch.Queue(`update balances set floor = $2 where account_id = $1`, account, int64(floor))
		return nil
	})
	if err != nil {
		return err
	}
	if short > 0 {
		return refuse(ledger.Short, "group.overcommit", "overcommit", g.Title+" has already handed out "+short.Hours()+" GPU-h more than this factor allows.",
			"short", short.Exact(), "limited_by", g.Path)
	}
	return tx.SendBatch(ctx, batch).Close()
}

// countUsedBelow makes the program's counters, or drops them at factor 1, where
// awards already debited the pot.
func countUsedBelow(ctx context.Context, tx *Tx, g Group, factorPPM int64) error {
	if factorPPM == 1_000_000 {
		_, err := tx.Exec(ctx, `delete from path_limits where program_id = $1`, g.ID)
		return err
	}
	_, err := tx.Exec(ctx, `insert into path_limits (program_id, pool_id, period_id, received, used)
		select r.group_id, r.pool_id, r.period_id, r.received, coalesce((select sum(b.balance) from accounts a
				join balances b on b.account_id = a.id join groups p on p.id = a.group_id
				where a.lot_id <> 0 and a.kind in ($2, $3, $4) and a.pool_id = r.pool_id and a.period_id = r.period_id
					and starts_with(p.path, $5 || '/')), 0)::bigint
		from (`+sqlReceived+`) r where r.group_id = $1
		on conflict (program_id, pool_id, period_id) do nothing`,
		g.ID, int16(ledger.Held), int16(ledger.Spent), int16(ledger.Credit), g.Path)
	return err
}
