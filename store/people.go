package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// Identity is a person as an identity provider knows them. People are keyed by
// (Issuer, Subject); everything else may change between two sign-ins.
type Identity struct {
	Issuer   string
	Subject  string
	Name     string
	Email    string
	Username string
	Groups   []string // of the provider; they map to roles
	Remote   string   // address the sign-in came from
}

// shownName is the best name the provider gave.
func (id Identity) shownName() string {
	for _, name := range []string{id.Name, id.Username, id.Email, id.Subject} {
		if name = strings.TrimSpace(name); name != "" {
			return clipRunes(name, 200)
		}
	}
	return "somebody"
}

func clipRunes(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most])
	}
	return s
}

// SignIn notes that a person signed in: makes them known, takes over their
// present name, and brings the roles that come from the provider's groups up to
// date, so that a lost group is a lost role. A disabled person is refused.
func (s *Store) SignIn(ctx context.Context, id Identity) (ledger.PersonID, error) {
	var person ledger.PersonID
	err := s.inTx(ctx, "sign in", func(tx *Tx) error {
		var disabled ledger.Instant
		_, err := tx.Exec(ctx, `insert into persons (issuer, subject, created_at) values ($1, $2, $3) on conflict (issuer, subject) do nothing`,
			id.Issuer, id.Subject, tx.Now)
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx, `select id, disabled_at from persons where issuer = $1 and subject = $2 for update`, id.Issuer, id.Subject).
			Scan(&person, &disabled)
		if err != nil {
			return err
		}
		if disabled != 0 {
			return refuse(ledger.Denied, "person.disabled", "", "This account was switched off. Ask an admin of Tranche.")
		}
		_, err = tx.Exec(ctx, `insert into person_names (person_id, name, email, username) values ($1, $2, $3, $4)
			on conflict (person_id) do update set name = excluded.name, email = excluded.email, username = excluded.username`,
			person, id.shownName(), clipRunes(id.Email, 320), clipRunes(id.Username, 200))
		if err != nil {
			return err
		}
		if err := refreshIdentityRoles(ctx, tx, person, id.Groups); err != nil {
			return err
		}
		cmd := Command{Actor: ledger.Actor{Person: person}, Remote: id.Remote}
		return audit(ctx, tx, cmd, act{Verb: "person.sign-in", Subject: subjectOf("person", person)})
	})
	return person, err
}

// refreshIdentityRoles makes the grants of source "identity" equal to what the
// provider's groups stand for now.
func refreshIdentityRoles(ctx context.Context, tx *Tx, person ledger.PersonID, groups []string) error {
	_, err := tx.Exec(ctx, `update role_grants g set revoked_at = $3
		where person_id = $1 and source = 'identity' and revoked_at is null and not exists (
			select 1 from identity_roles i where i.identity_group = any($2) and i.role = g.role and i.group_id = g.group_id)`,
		person, groups, tx.Now)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `insert into role_grants (person_id, role, group_id, source, granted_at)
		select distinct $1::bigint, i.role, i.group_id, 'identity', $3::timestamptz from identity_roles i where i.identity_group = any($2)
		on conflict (person_id, role, group_id, source) where revoked_at is null do nothing`, person, groups, tx.Now)
	return err
}

// IdentityRole says that members of a provider's group hold a role at a path.
type IdentityRole struct {
	Group string // the provider's name for it
	Role  ledger.Role
	Path  string
}

// SetIdentityRoles replaces the mapping of the provider's groups to roles, as the
// server's configuration has it. It applies from each person's next sign-in on.
func (s *Store) SetIdentityRoles(ctx context.Context, roles []IdentityRole) error {
	return s.inTx(ctx, "set identity roles", func(tx *Tx) error {
		if _, err := tx.Exec(ctx, `delete from identity_roles`); err != nil {
			return err
		}
		for _, r := range roles {
			if !slices.Contains(ledger.Roles(), r.Role) {
				return refuse(ledger.Invalid, "role.unknown", "role", "There is no role "+string(r.Role)+".")
			}
			g, err := groupByPath(ctx, tx, r.Path)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `insert into identity_roles (identity_group, role, group_id) values ($1, $2, $3) on conflict do nothing`,
				r.Group, r.Role, g.ID)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Actor gives a person with the roles they hold now; expired and revoked grants
// are left out. Somebody unknown or switched off is refused.
func (s *Store) Actor(ctx context.Context, person ledger.PersonID) (ledger.Actor, error) {
	var a ledger.Actor
	err := s.inTx(ctx, "actor", func(tx *Tx) error {
		var err error
		a, err = actorOf(ctx, tx, person)
		return err
	})
	return a, err
}

func actorOf(ctx context.Context, tx *Tx, person ledger.PersonID) (ledger.Actor, error) {
	a := ledger.Actor{Person: person}
	rows, err := tx.Query(ctx, `select coalesce(n.name, 'Person ' || p.id), p.disabled_at, r.role, g.id, g.path, r.until
		from persons p left join person_names n on n.person_id = p.id
		left join role_grants r on r.person_id = p.id and r.revoked_at is null and (r.until is null or r.until > $2)
		left join groups g on g.id = r.group_id
		where p.id = $1 order by g.path, r.role`, person, tx.Now)
	if err != nil {
		return a, err
	}
	found := false
	var disabled, until ledger.Instant
	var role, path *string
	var group *int64
	_, err = pgx.ForEachRow(rows, []any{&a.Name, &disabled, &role, &group, &path, &until}, func() error {
		found = true
		if role != nil {
			a.Grants = append(a.Grants, ledger.Grant{Role: ledger.Role(*role), Group: ledger.GroupID(*group), Path: *path, Until: until})
		}
		return nil
	})
	if err != nil {
		return a, err
	}
	if !found || disabled != 0 {
		return ledger.Actor{}, refuse(ledger.Denied, "person.disabled", "", "This account was switched off. Ask an admin of Tranche.")
	}
	return a, nil
}

// RoleInput names a role of a person at a group.
type RoleInput struct {
	Person ledger.PersonID
	Group  ledger.GroupID
	Role   ledger.Role
	Until  ledger.Instant // 0: no end
}

// GrantRole gives a person a role at a group and below it. Only an admin there may.
func (s *Store) GrantRole(ctx context.Context, cmd Command, in RoleInput) error {
	_, err := runCommand(ctx, s, "grant role", cmd, in, func(tx *Tx) (bool, error) {
		g, err := groupByID(ctx, tx, in.Group)
		if err != nil {
			return false, err
		}
		if r := cmd.Actor.May(ledger.PeopleGrant, g.Path, tx.Now); r != nil {
			return false, r
		}
		if rs := checkRole(in, tx.Now); len(rs) > 0 {
			return false, rs
		}
		if err := personExists(ctx, tx, in.Person); err != nil {
			return false, err
		}
		source := "manual"
		if in.Until != 0 {
			source = "deputy"
		}
		if err := insertGrant(ctx, tx, in, source, cmd.Actor.Person); err != nil {
			return false, err
		}
		err = audit(ctx, tx, cmd, act{
			Verb: "people.grant", Subject: subjectOf("person", in.Person),
			After: map[string]any{"role": in.Role, "group": g.Path, "until": in.Until},
		})
		if err != nil {
			return false, err
		}
		return true, mail(ctx, tx, letter{
			Kind: "role.granted", Person: in.Person, Subject: "You are " + string(in.Role) + " of " + g.Title,
			Body: map[string]any{"role": in.Role, "group": g.Path},
		})
	})
	return err
}

func checkRole(in RoleInput, now ledger.Instant) ledger.Refusals {
	var rs ledger.Refusals
	if !slices.Contains(ledger.Roles(), in.Role) {
		rs = append(rs, refuse(ledger.Invalid, "role.unknown", "role", "Choose one of the roles."))
	}
	if in.Until != 0 && in.Until <= now {
		rs = append(rs, refuse(ledger.Invalid, "role.until", "until", "Choose a last day that is not over yet."))
	}
	return rs
}

func personExists(ctx context.Context, tx *Tx, person ledger.PersonID) error {
	var ok bool
	if err := tx.QueryRow(ctx, `select exists (select 1 from persons where id = $1)`, person).Scan(&ok); err != nil {
		return err
	}
	if !ok {
		return refuse(ledger.Invalid, "person.missing", "person", "Choose somebody who has signed in before; invite the others by mail.")
	}
	return nil
}

func insertGrant(ctx context.Context, tx *Tx, in RoleInput, source string, by ledger.PersonID) error {
	_, err := tx.Exec(ctx, `insert into role_grants (person_id, role, group_id, source, until, granted_by, granted_at)
		values ($1, $2, $3, $4, $5, nullif($6::bigint, 0), $7)
		on conflict (person_id, role, group_id, source) where revoked_at is null do update set until = excluded.until`,
		in.Person, in.Role, in.Group, source, in.Until, by, tx.Now)
	return err
}

// RevokeRole takes a role away. An admin there may, and a PI may let a researcher
// of the project go. The last admin of the root stays.
func (s *Store) RevokeRole(ctx context.Context, cmd Command, in RoleInput) error {
	_, err := runCommand(ctx, s, "revoke role", cmd, in, func(tx *Tx) (bool, error) {
		g, err := groupByID(ctx, tx, in.Group)
		if err != nil {
			return false, err
		}
		refusal := cmd.Actor.May(ledger.PeopleGrant, g.Path, tx.Now)
		if refusal != nil && in.Role == ledger.Researcher && cmd.Actor.May(ledger.PeopleInvite, g.Path, tx.Now) == nil {
			refusal = nil
		}
		if refusal != nil {
			return false, refusal
		}
		if in.Role == ledger.Admin && g.Parent == 0 {
			if err := keepOneAdmin(ctx, tx, in); err != nil {
				return false, err
			}
		}
		tag, err := tx.Exec(ctx, `update role_grants set revoked_at = $4 where person_id = $1 and role = $2 and group_id = $3 and revoked_at is null`,
			in.Person, in.Role, in.Group, tx.Now)
		if err != nil {
			return false, err
		}
		if tag.RowsAffected() == 0 {
			return false, refuse(ledger.Missing, "role.missing", "", "This person does not hold that role here any more.")
		}
		return true, audit(ctx, tx, cmd, act{
			Verb: "people.revoke", Subject: subjectOf("person", in.Person),
			Before: map[string]any{"role": in.Role, "group": g.Path},
		})
	})
	return err
}

// keepOneAdmin locks the root's admins so that two cannot remove each other.
func keepOneAdmin(ctx context.Context, tx *Tx, in RoleInput) error {
	rows, err := tx.Query(ctx, `select person_id from role_grants where role = 'admin' and group_id = $1 and revoked_at is null
		and (until is null or until > $2) order by id for update`, in.Group, tx.Now)
	if err != nil {
		return err
	}
	admins, err := pgx.CollectRows(rows, pgx.RowTo[ledger.PersonID])
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(admins, func(p ledger.PersonID) bool { return p != in.Person }) {
		return refuse(ledger.Conflict, "role.last_admin", "", "This is the last admin of the whole tree. Make somebody else admin first.")
	}
	return nil
}

// PersonGrant is one role of one person, as lists show it.
type PersonGrant struct {
	Person    ledger.PersonID
	Name      string
	Email     string
	Role      ledger.Role
	Group     ledger.GroupID
	Path      string
	Title     string
	Until     ledger.Instant
	Source    string
	GrantedAt ledger.Instant
}

// PeopleQuery chooses what People lists: everybody, or the roles that apply at
// one group, held there or above it.
type PeopleQuery struct {
	Group  ledger.GroupID // 0: everybody
	Sight  *ledger.Sight  // only roles at groups that it sees; nil: at all
	Offset int64          // keyset by position: lists of people are short
	Limit  int64
}

// People lists live grants, ordered by path, role, name.
func (s *Store) People(ctx context.Context, q PeopleQuery) ([]PersonGrant, error) {
	var out []PersonGrant
	err := s.readTx(ctx, "people", func(tx *Tx) error {
		var seen []ledger.GroupID // nil: all
		if q.Sight != nil && !q.Sight.All() {
			var err error
			if seen, err = groupsSeen(ctx, tx, *q.Sight); err != nil {
				return err
			}
		}
		rows, err := tx.Query(ctx, `select r.person_id, coalesce(n.name, 'Person ' || r.person_id), coalesce(n.email, ''), r.role,
				g.id, g.path, g.title, r.until, r.source, r.granted_at
			from role_grants r join groups g on g.id = r.group_id left join person_names n on n.person_id = r.person_id
			where r.revoked_at is null and (r.until is null or r.until > $1)
				and ($2 = 0 or exists (select 1 from groups at where at.id = $2 and (at.path = g.path or starts_with(at.path, g.path || '/'))))
				and ($5::bigint[] is null or g.id = any($5))
			order by g.path desc, r.role, n.name, r.id offset $3 limit $4`, tx.Now, int64(q.Group), q.Offset, q.Limit, seen)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, pgx.RowToStructByPos[PersonGrant])
		return err
	})
	return out, err
}

// Person is somebody who has signed in before.
type Person struct {
	ID    ledger.PersonID
	Name  string
	Email string
}

// PersonByID reads one person; a name that was erased reads as their number.
func (s *Store) PersonByID(ctx context.Context, id ledger.PersonID) (Person, error) {
	var p Person
	err := s.readTx(ctx, "person", func(tx *Tx) error {
		return tx.QueryRow(ctx, `select p.id, coalesce(n.name, 'Person ' || p.id), coalesce(n.email, '')
			from persons p left join person_names n on n.person_id = p.id where p.id = $1`, id).Scan(&p.ID, &p.Name, &p.Email)
	})
	return p, err
}

// Persons lists who has signed in before, by name, for choosing somebody.
func (s *Store) Persons(ctx context.Context, limit int) ([]Person, error) {
	rows, err := s.pool.Query(ctx, `select p.id, coalesce(n.name, 'Person ' || p.id), coalesce(n.email, '') from persons p
		left join person_names n on n.person_id = p.id where p.disabled_at is null order by n.name, p.id limit $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("store: persons: %w", err)
	}
	return collect[Person]("persons", rows)
}

// AuditLine is one deed of the audit.
type AuditLine struct {
	ID      int64
	At      ledger.Instant
	Person  ledger.PersonID
	Name    string
	Remote  string
	Verb    string
	Subject string
	Before  []byte // JSON, nil when there was nothing
	After   []byte
}

// AuditQuery chooses audit lines, newest first, older than Before.
type AuditQuery struct {
	Verb   string // "" for all
	Person ledger.PersonID
	Before int64 // id; 0 for the newest
	Limit  int
}

// Audit lists deeds, newest first.
func (s *Store) Audit(ctx context.Context, q AuditQuery) ([]AuditLine, error) {
	rows, err := s.pool.Query(ctx, `select a.id, a.at, a.person_id, coalesce(n.name, case when a.person_id = 0 then 'Tranche' else 'Person ' || a.person_id end),
			a.remote, a.verb, a.subject, a.before, a.after
		from audit a left join person_names n on n.person_id = a.person_id
		where ($1 = '' or a.verb = $1) and ($2 = 0 or a.person_id = $2) and ($3 = 0 or a.id < $3)
		order by a.id desc limit $4`, q.Verb, int64(q.Person), q.Before, q.Limit)
	if err != nil {
		return nil, fmt.Errorf("store: audit: %w", err)
	}
	return collect[AuditLine]("audit", rows)
}

// AuditVerbs lists the verbs that occur, for the filter.
func (s *Store) AuditVerbs(ctx context.Context) ([]string, error) {
	rows, err := s.pool.Query(ctx, `select distinct verb from audit order by verb`)
	if err != nil {
		return nil, fmt.Errorf("store: audit verbs: %w", err)
	}
	verbs, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("store: audit verbs: %w", err)
	}
	return verbs, nil
}

// collect reads rows by the position of T's fields.
func collect[T any](name string, rows pgx.Rows) ([]T, error) {
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", name, err)
	}
	return out, nil
}

// noRow says that a query found nothing.
func noRow(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// refuse makes a refusal; facts are name, value pairs.
func refuse(kind ledger.Kind, code, field, detail string, facts ...string) *ledger.Refusal {
	r := &ledger.Refusal{Kind: kind, Code: code, Field: field, Detail: detail}
	for i := 0; i+1 < len(facts); i += 2 {
		if r.Facts == nil {
			r.Facts = map[string]string{}
		}
		r.Facts[facts[i]] = facts[i+1]
	}
	return r
}

// subjectOf names a thing for the audit: "request 17".
func subjectOf[T ~int64](what string, id T) string {
	return what + " " + strconv.FormatInt(int64(id), 10)
}
