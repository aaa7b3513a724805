package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// RequestLineRow is one pool of a request.
type RequestLineRow struct {
	Pool     ledger.PoolID
	PoolName string
	Model    string
	Asked    ledger.Amount
	Awarded  ledger.Amount // 0 until awarded
}

// RequestRow is one request in a list.
type RequestRow struct {
	ID          ledger.RequestID
	Project     ledger.GroupID // 0 while only proposed
	Program     ledger.GroupID
	Title       string // of the project, or the proposed name
	Path        string
	Period      ledger.PeriodID
	PeriodName  string
	Purpose     string
	State       ledger.RequestState
	Version     int64
	Author      ledger.PersonID
	AuthorName  string
	ChangedAt   ledger.Instant
	ChangedBy   string
	DecidedBy   ledger.PersonID
	PeriodFirst ledger.Instant
	PeriodLast  ledger.Instant
	Lines       []RequestLineRow
}

// RequestQuery chooses requests. Those the actor may not read are left out.
type RequestQuery struct {
	State   ledger.RequestState // "" for all
	Project ledger.GroupID      // 0 for all
	Program ledger.GroupID      // 0 for all: whose pot pays
	Author  ledger.PersonID     // 0 for all
	Before  ledger.RequestID    // older than this one; 0: from the newest
	Limit   int
}

const requestColumns = `r.id, coalesce(r.project_id, 0), r.program_id, coalesce(g.title, r.proposed->>'title'), coalesce(g.path, p.path || '/' || (r.proposed->>'slug')),
		r.period_id, d.name, r.purpose, r.state, r.version, r.author_id, coalesce(n.name, 'Person ' || r.author_id), r.changed_at,
		coalesce((select coalesce(m.name, 'Person ' || e.person_id) from request_events e left join person_names m on m.person_id = e.person_id
			where e.request_id = r.id order by e.id desc limit 1), ''), coalesce(r.decided_by, 0), d.first, d.last
	from requests r join groups p on p.id = r.program_id join periods d on d.id = r.period_id
	left join groups g on g.id = r.project_id left join person_names n on n.person_id = r.author_id`

func scanRequest(row pgx.CollectableRow) (RequestRow, error) {
	var r RequestRow
	err := row.Scan(&r.ID, &r.Project, &r.Program, &r.Title, &r.Path, &r.Period, &r.PeriodName, &r.Purpose, &r.State, &r.Version,
		&r.Author, &r.AuthorName, &r.ChangedAt, &r.ChangedBy, &r.DecidedBy, &r.PeriodFirst, &r.PeriodLast)
	return r, err
}

// Requests lists requests the actor may read, newest first: their own, and those
// of groups where a role lets them read what is private.
func (s *Store) Requests(ctx context.Context, actor ledger.Actor, q RequestQuery) ([]RequestRow, error) {
	var out []RequestRow
	err := s.readTx(ctx, "requests", func(tx *Tx) error {
		rows, err := tx.Query(ctx, `select `+requestColumns+`
			where ($1 = '' or r.state = $1) and ($2 = 0 or r.project_id = $2) and ($3 = 0 or r.program_id = $3) and ($4 = 0 or r.author_id = $4)
				and ($5 = 0 or r.id < $5) and (r.author_id = $6 or (r.state <> 'draft' and exists (select 1 from unnest($7::text[]) a (path)
					where starts_with(coalesce(g.path, p.path || '/' || (r.proposed->>'slug')) || '/', a.path || '/'))))
			order by r.id desc limit $8`, string(q.State), int64(q.Project), int64(q.Program), int64(q.Author), int64(q.Before),
			int64(actor.Person), pathsWhere(actor, ledger.SeePrivate, tx.Now), q.Limit)
		if err != nil {
			return err
		}
		if out, err = pgx.CollectRows(rows, scanRequest); err != nil {
			return err
		}
		return addLines(ctx, tx, out)
	})
	return out, err
}

// pathsWhere gives the paths at which the actor's roles allow a verb.
func pathsWhere(actor ledger.Actor, verb ledger.Verb, now ledger.Instant) []string {
	paths := []string{}
	for _, g := range actor.Grants {
		if actor.May(verb, g.Path, now) == nil && !slices.Contains(paths, g.Path) {
			paths = append(paths, g.Path)
		}
	}
	return paths
}

// addLines gives requests their lines, by pool name.
func addLines(ctx context.Context, tx *Tx, list []RequestRow) error {
	ids := make([]ledger.RequestID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	rows, err := tx.Query(ctx, `select l.request_id, l.pool_id, p.name, p.gpu_model, l.asked, coalesce(l.awarded, 0)
		from request_lines l join pools p on p.id = l.pool_id where l.request_id = any($1) order by p.name`, ids)
	if err != nil {
		return err
	}
	var id ledger.RequestID
	var line RequestLineRow
	_, err = pgx.ForEachRow(rows, []any{&id, &line.Pool, &line.PoolName, &line.Model, &line.Asked, &line.Awarded}, func() error {
		i := slices.Index(ids, id)
		list[i].Lines = append(list[i].Lines, line)
		return nil
	})
	return err
}

// RequestEvent is one step in a request's life.
type RequestEvent struct {
	At     ledger.Instant
	By     string
	Action ledger.RequestAction
	Note   string
	Lines  []ledger.RequestLine // as they were after the step
}

// RequestFull is one request with its whole history.
type RequestFull struct {
	RequestRow
	ProgramTitle string
	Outcome      string
	Deadline     ledger.Instant
	New          *NewProject // what it proposed, also after the award made it
	Events       []RequestEvent
}

// Request reads one request; what the actor may not read is refused as missing.
func (s *Store) Request(ctx context.Context, actor ledger.Actor, id ledger.RequestID) (RequestFull, error) {
	var out RequestFull
	err := s.readTx(ctx, "request", func(tx *Tx) error {
		rows, err := tx.Query(ctx, `select `+requestColumns+` where r.id = $1`, int64(id))
		if err != nil {
			return err
		}
		row, err := pgx.CollectOneRow(rows, scanRequest)
		missing := refuse(ledger.Missing, "request.missing", "", "There is no such request.")
		if noRow(err) {
			return missing
		}
		if err != nil {
			return err
		}
		mine := row.Author == actor.Person
		if !mine && (row.State == ledger.Draft || actor.May(ledger.SeePrivate, row.Path, tx.Now) != nil) {
			return missing
		}
		list := []RequestRow{row}
		if err := addLines(ctx, tx, list); err != nil {
			return err
		}
		out = RequestFull{RequestRow: list[0]}
		return addHistory(ctx, tx, &out)
	})
	return out, err
}

func addHistory(ctx context.Context, tx *Tx, out *RequestFull) error {
	var proposed []byte
	err := tx.QueryRow(ctx, `select r.outcome, r.deadline, r.proposed, p.title from requests r join groups p on p.id = r.program_id where r.id = $1`, int64(out.ID)).
		Scan(&out.Outcome, &out.Deadline, &proposed, &out.ProgramTitle)
	if err != nil {
		return err
	}
	if proposed != nil {
		if err := json.Unmarshal(proposed, &out.New); err != nil {
			return fmt.Errorf("proposed project of request %d: %w", out.ID, err)
		}
	}
	rows, err := tx.Query(ctx, `select e.at, coalesce(n.name, 'Person ' || e.person_id), e.action, e.note, coalesce(e.detail, '[]') from request_events e
		left join person_names n on n.person_id = e.person_id where e.request_id = $1 order by e.id`, int64(out.ID))
	if err != nil {
		return err
	}
	out.Events, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (RequestEvent, error) {
		var e RequestEvent
		var detail []byte
		if err := row.Scan(&e.At, &e.By, &e.Action, &e.Note, &detail); err != nil {
			return e, err
		}
		return e, json.Unmarshal(detail, &e.Lines)
	})
	return err
}

// WaitingReviews counts submitted requests that the actor may answer.
func (s *Store) WaitingReviews(ctx context.Context, actor ledger.Actor) (int, error) {
	paths := pathsWhere(actor, ledger.RequestReview, s.Now())
	if len(paths) == 0 {
		return 0, nil
	}
	var n int
	err := s.pool.QueryRow(ctx, `select count(*) from requests r join groups p on p.id = r.program_id left join groups g on g.id = r.project_id
		where r.state = 'submitted' and r.author_id <> $1 and exists (select 1 from unnest($2::text[]) a (path)
			where starts_with(coalesce(g.path, p.path || '/' || (r.proposed->>'slug')) || '/', a.path || '/'))`, int64(actor.Person), paths).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("store: waiting reviews: %w", err)
	}
	return n, nil
}
