package store

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// hashSecret is what the database keeps of a token: enough to recognise it.
func hashSecret(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// maxTokenDays bounds how long an API token may live.
const maxTokenDays = 366

// TokenInput asks for an API token. Secret is made by the caller and shown once;
// only its hash is kept.
type TokenInput struct {
	Project ledger.GroupID // or a program, for roles that are held there
	Name    string
	Days    int64         // of business time until it expires
	Limit   ledger.Amount // what it may spend in all; 0: no limit of its own
	Secret  string        `json:"-"`
}

// CreateToken makes an API token of the actor for one project, or for a program and
// what is below it.
func (s *Store) CreateToken(ctx context.Context, cmd Command, in TokenInput) (int64, error) {
	content := struct {
		TokenInput
		Hash []byte
	}{in, hashSecret(in.Secret)}
	return runCommand(ctx, s, "create token", cmd, content, func(tx *Tx) (int64, error) {
		g, err := groupSeen(ctx, tx, cmd.Actor, in.Project)
		if err != nil {
			return 0, err
		}
		if r := cmd.Actor.MayOwn(ledger.TokenWrite, g.Path, cmd.Actor.Person, tx.Now); r != nil {
			return 0, r
		}
		if rs := checkToken(in); len(rs) > 0 {
			return 0, rs
		}
		var id int64
		err = tx.QueryRow(ctx, `insert into api_tokens (person_id, project_id, name, token_hash, spending_limit, created_at, expires_at)
			values ($1, $2, $3, $4, nullif($5::bigint, 0), $6, $7) returning id`,
			cmd.Actor.Person, in.Project, strings.TrimSpace(in.Name), hashSecret(in.Secret), int64(in.Limit), tx.Now,
			tx.Now.Add(in.Days*86_400_000)).Scan(&id)
		if err != nil {
			return 0, err
		}
		return id, audit(ctx, tx, cmd, act{
			Verb: "token.create", Subject: subjectOf("token", id),
			After: map[string]any{"project": g.Path, "name": in.Name, "days": in.Days, "limit_units": in.Limit},
		})
	})
}

func checkToken(in TokenInput) ledger.Refusals {
	var rs ledger.Refusals
	if n := utf8.RuneCountInString(strings.TrimSpace(in.Name)); n < 1 || n > 200 {
		rs = append(rs, refuse(ledger.Invalid, "token.name", "name", "Name the token after what will use it, in at most 200 characters."))
	}
	if in.Days < 1 || in.Days > maxTokenDays {
		rs = append(rs, refuse(ledger.Invalid, "token.days", "days", fmt.Sprintf("A token lives between 1 and %d days.", maxTokenDays)))
	}
	if in.Limit < 0 {
		rs = append(rs, refuse(ledger.Invalid, "token.limit", "limit", "A spending limit is above 0, or left empty."))
	}
	return rs
}

// RevokeToken ends a token at once: its owner may, and a PI of its project.
func (s *Store) RevokeToken(ctx context.Context, cmd Command, id int64) error {
	_, err := runCommand(ctx, s, "revoke token", cmd, id, func(tx *Tx) (bool, error) {
		var owner ledger.PersonID
		var path string
		err := tx.QueryRow(ctx, `select t.person_id, coalesce(g.path, '') from api_tokens t left join groups g on g.id = t.project_id
			where t.id = $1 for update of t`, id).Scan(&owner, &path)
		if noRow(err) {
			return false, refuse(ledger.Missing, "token.missing", "", "There is no such token.")
		}
		if err != nil {
			return false, err
		}
		if owner != cmd.Actor.Person {
			if r := cmd.Actor.May(ledger.TokenWrite, path, tx.Now); r != nil {
				return false, r
			}
		}
		if _, err := tx.Exec(ctx, `update api_tokens set revoked_at = $2 where id = $1 and revoked_at is null`, id, tx.Now); err != nil {
			return false, err
		}
		return true, audit(ctx, tx, cmd, act{Verb: "token.revoke", Subject: subjectOf("token", id)})
	})
	return err
}

// TokenActor finds the actor behind an API token: its owner with the roles they
// hold now, bound to the token's project or program. Unknown, expired and revoked tokens are
// refused alike.
func (s *Store) TokenActor(ctx context.Context, secret string) (ledger.Actor, error) {
	var a ledger.Actor
	err := s.inTx(ctx, "token actor", func(tx *Tx) error {
		var id int64
		var owner ledger.PersonID
		var project ledger.GroupID
		var path string
		err := tx.QueryRow(ctx, `select t.id, t.person_id, coalesce(g.id, 0), coalesce(g.path, '') from api_tokens t
			left join groups g on g.id = t.project_id
			where t.token_hash = $1 and t.revoked_at is null and t.expires_at > $2`, hashSecret(secret), tx.Now).Scan(&id, &owner, &project, &path)
		if noRow(err) {
			return refuse(ledger.Denied, "token.unknown", "", "This token is not valid: it expired, was revoked or never existed. Make a new one.")
		}
		if err != nil {
			return err
		}
		if a, err = actorOf(ctx, tx, owner); err != nil {
			return err
		}
		a.Token, a.TokenProject, a.TokenPath = id, project, path
		// At most one write a minute, so that polling costs no row version each time.
		_, err = tx.Exec(ctx, `update api_tokens set last_used_at = $2 where id = $1 and (last_used_at is null or last_used_at < $3)`,
			id, tx.Now, tx.Now.Add(-60_000))
		return err
	})
	return a, err
}

// reserveOnToken takes the most a job may cost from its token's spending limit.
// Tokens without a limit, and jobs that are never charged, need none. What the
// job did not cost comes back when it is over. An array's jobs are n alike.
func reserveOnToken(ctx context.Context, tx *Tx, token int64, j *scheduler.Job, n int64) error {
	if token == 0 || j.Contract.MinMs == 0 {
		return nil
	}
	var limit, used ledger.Amount
	err := tx.QueryRow(ctx, `select coalesce(spending_limit, 0), held_or_spent from api_tokens where id = $1 for update`, token).Scan(&limit, &used)
	if err != nil || limit == 0 {
		return err
	}
	left := limit - used
	most, err := j.Contract.MaxCharge.MulRatio(n, 1)
	switch {
	case err != nil:
		return refuse(ledger.Invalid, "token.max_charge", "max_charge_units", "So many jobs together may cost more than can be counted; allow each of them less.")
	case most == 0:
		return refuse(ledger.Invalid, "token.max_charge", "max_charge_units",
			"This token may spend "+left.Hours()+" GPU-h more; say what the job may cost at most.", "available", left.Exact())
	case most > left:
		return refuse(ledger.Short, "token.limit_reached", "max_charge_units",
			"This token may spend "+left.Hours()+" GPU-h more, "+(most-left).Hours()+" GPU-h less than this may cost.",
			"needed", most.Exact(), "available", left.Exact(), "short", (most - left).Exact(), "limited_by", "the token's spending limit")
	}
	_, err = tx.Exec(ctx, `update api_tokens set held_or_spent = held_or_spent + $2 where id = $1`, token, most)
	return err
}

// queueTokenSettled gives back, once, what a job that is over did not cost. It
// goes before the job's own row says that it is over.
func queueTokenSettled(batch *pgx.Batch, job ledger.JobID, charged ledger.Amount) {
	batch.Queue(`update api_tokens t set held_or_spent = greatest(0, least(t.spending_limit, t.held_or_spent - j.max_charge + $2))
		from jobs j where j.id = $1 and j.finished_at is null and j.min_ms > 0 and j.max_charge > 0
			and t.id = j.token_id and t.spending_limit is not null`, job, charged)
}

// queueTokensFreed is queueTokenSettled for jobs that never started.
func queueTokensFreed(batch *pgx.Batch, jobs []ledger.JobID) {
	batch.Queue(`update api_tokens t set held_or_spent = greatest(0, least(t.spending_limit, t.held_or_spent - d.most))
		from (select token_id, sum(max_charge)::bigint as most from jobs where id = any($1) and finished_at is null and min_ms > 0 group by token_id) d
		where t.id = d.token_id and t.spending_limit is not null`, jobs)
}

// Token is one API token as its owner sees it; the secret is gone.
type Token struct {
	ID        int64
	Name      string
	Project   string // path
	Title     string
	Limit     ledger.Amount // 0: none
	Used      ledger.Amount // held or spent
	CreatedAt ledger.Instant
	ExpiresAt ledger.Instant
	UsedAt    ledger.Instant
	RevokedAt ledger.Instant
}

// Tokens lists a person's tokens, newest first.
func (s *Store) Tokens(ctx context.Context, person ledger.PersonID) ([]Token, error) {
	rows, err := s.pool.Query(ctx, `select t.id, t.name, coalesce(g.path, ''), coalesce(g.title, ''), coalesce(t.spending_limit, 0), t.held_or_spent,
			t.created_at, t.expires_at, t.last_used_at, t.revoked_at
		from api_tokens t left join groups g on g.id = t.project_id where t.person_id = $1 order by t.id desc limit 200`, person)
	if err != nil {
		return nil, fmt.Errorf("store: tokens: %w", err)
	}
	return collect[Token]("tokens", rows)
}
