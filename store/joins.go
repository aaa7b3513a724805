package store

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"tranche/ledger"
)

// inviteDays is how long an invite may be accepted.
const inviteDays = 14

// newSecret is 32 random bytes as text.
func newSecret() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// AskToJoin asks the people who lead a project to let the actor in.
func (s *Store) AskToJoin(ctx context.Context, cmd Command, project ledger.GroupID, note string) (int64, error) {
	note = strings.TrimSpace(note)
	return runCommand(ctx, s, "ask to join", cmd, []any{project, note}, func(tx *Tx) (int64, error) {
		g, err := groupSeen(ctx, tx, cmd.Actor, project)
		if err != nil {
			return 0, err
		}
		if !g.Project || g.ArchivedAt != 0 {
			return 0, refuse(ledger.Invalid, "join.project", "project", "Choose a project.")
		}
		if utf8.RuneCountInString(note) > 2000 {
			return 0, refuse(ledger.Invalid, "join.note", "message", "Shorten the message to at most 2,000 characters.")
		}
		if slices.ContainsFunc(cmd.Actor.Grants, func(h ledger.Grant) bool { return h.Group == project }) {
			return 0, refuse(ledger.Invalid, "join.member", "project", "You already belong to "+g.Title+".")
		}
		var id int64
		err = tx.QueryRow(ctx, `insert into join_requests (person_id, project_id, note, asked_at) values ($1, $2, $3, $4) returning id`,
			cmd.Actor.Person, project, note, tx.Now).Scan(&id)
		if err != nil {
			return 0, err
		}
		if err := mailLeads(ctx, tx, g, letter{Kind: "join.asked", Subject: cmd.Actor.Name + " asks to join " + g.Title, Body: map[string]any{"join": id}}); err != nil {
			return 0, err
		}
		return id, audit(ctx, tx, cmd, act{Verb: "people.join.ask", Subject: subjectOf("join", id), After: map[string]any{"project": g.Path}})
	})
}

// mailLeads sends one letter to everybody who leads a project.
func mailLeads(ctx context.Context, tx *Tx, g Group, l letter) error {
	_, err := tx.Exec(ctx, `insert into outbox (at, kind, person_id, subject, body)
		select distinct $1::timestamptz, $2::text, r.person_id, $3::text, jsonb_build_object('group', $4::text) || $5::jsonb from role_grants r
		where r.group_id = $6 and r.role = 'pi' and r.revoked_at is null and (r.until is null or r.until > $1)`,
		tx.Now, l.Kind, l.Subject, g.Path, l.Body, g.ID)
	return err
}

// DecideJoin lets somebody into a project, as a researcher, or declines.
func (s *Store) DecideJoin(ctx context.Context, cmd Command, id int64, approve bool) error {
	_, err := runCommand(ctx, s, "decide join", cmd, []any{id, approve}, func(tx *Tx) (bool, error) {
		var person ledger.PersonID
		var project ledger.GroupID
		var state string
		err := tx.QueryRow(ctx, `select person_id, project_id, state from join_requests where id = $1 for update`, id).Scan(&person, &project, &state)
		if noRow(err) {
			return false, refuse(ledger.Missing, "join.missing", "", "There is no such ask to join.")
		}
		if err != nil {
			return false, err
		}
		g, err := groupByID(ctx, tx, project)
		if err != nil {
			return false, err
		}
		if r := cmd.Actor.May(ledger.PeopleJoinDecide, g.Path, tx.Now); r != nil {
			return false, r
		}
		if person == cmd.Actor.Person {
			return false, refuse(ledger.Denied, "join.own", "", "Somebody else must answer your own ask.")
		}
		if state != "open" {
			return false, refuse(ledger.Conflict, "join.state", "", "This ask was already answered: it is "+state+".")
		}
		return true, answerJoin(ctx, tx, cmd, joinAnswer{id: id, person: person, group: g, approve: approve})
	})
	return err
}

// joinAnswer is an answer to an ask to join.
type joinAnswer struct {
	id      int64
	person  ledger.PersonID
	group   Group
	approve bool
}

func answerJoin(ctx context.Context, tx *Tx, cmd Command, a joinAnswer) error {
	next, word := "denied", "declined"
	if a.approve {
		next, word = "approved", "approved"
		if err := insertGrant(ctx, tx, RoleInput{Person: a.person, Group: a.group.ID, Role: ledger.Researcher}, "manual", cmd.Actor.Person); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, `update join_requests set state = $2, decided_by = $3, decided_at = $4 where id = $1`, a.id, next, cmd.Actor.Person, tx.Now)
	if err != nil {
		return err
	}
	err = mail(ctx, tx, letter{Kind: "join." + next, Person: a.person, Subject: "Your ask to join " + a.group.Title + " was " + word, Body: map[string]any{"group": a.group.Path}})
	if err != nil {
		return err
	}
	return audit(ctx, tx, cmd, act{Verb: "people.join.decide", Subject: subjectOf("join", a.id), Before: map[string]any{"state": "open"}, After: map[string]any{"state": next, "project": a.group.Path}})
}

// JoinRow is one ask to join.
type JoinRow struct {
	ID      int64
	Person  ledger.PersonID
	Name    string
	Project ledger.GroupID
	Path    string
	Title   string
	Note    string
	State   string // open, approved, denied, withdrawn
	AskedAt ledger.Instant
}

const joinColumns = `j.id, j.person_id, coalesce(n.name, 'Person ' || j.person_id), g.id, g.path, g.title, j.note, j.state, j.asked_at
		from join_requests j join groups g on g.id = j.project_id left join person_names n on n.person_id = j.person_id`

// JoinsOf lists a person's own asks, newest first.
func (s *Store) JoinsOf(ctx context.Context, person ledger.PersonID) ([]JoinRow, error) {
	rows, err := s.pool.Query(ctx, `select `+joinColumns+` where j.person_id = $1 order by j.id desc limit 50`, person)
	if err != nil {
		return nil, fmt.Errorf("store: joins: %w", err)
	}
	return collect[JoinRow]("joins", rows)
}

// OpenJoins lists asks that wait and that the actor may answer, oldest first.
func (s *Store) OpenJoins(ctx context.Context, actor ledger.Actor) ([]JoinRow, error) {
	rows, err := s.pool.Query(ctx, `select `+joinColumns+` where j.state = 'open' and j.person_id <> $1 order by j.id limit 1000`, actor.Person)
	if err != nil {
		return nil, fmt.Errorf("store: open joins: %w", err)
	}
	all, err := collect[JoinRow]("open joins", rows)
	now := s.Now()
	return slices.DeleteFunc(all, func(j JoinRow) bool { return actor.May(ledger.PeopleJoinDecide, j.Path, now) != nil }), err
}

// Invite asks somebody by mail to join a project. Secret is made by the caller,
// mailed, and kept as a hash.
type Invite struct {
	Project ledger.GroupID
	Email   string
	Role    ledger.Role
	Secret  string `json:"-"`
}

// CreateInvite invites somebody by mail. A PI may invite researchers and a deputy PI.
func (s *Store) CreateInvite(ctx context.Context, cmd Command, in Invite) error {
	in.Email = strings.TrimSpace(in.Email)
	_, err := runCommand(ctx, s, "create invite", cmd, in, func(tx *Tx) (bool, error) {
		g, err := groupByID(ctx, tx, in.Project)
		if err != nil {
			return false, err
		}
		if r := cmd.Actor.May(ledger.PeopleInvite, g.Path, tx.Now); r != nil {
			return false, r
		}
		var rs ledger.Refusals
		if !g.Project {
			rs = append(rs, refuse(ledger.Invalid, "invite.project", "group", "Choose a project."))
		}
		if !looksLikeMail(in.Email) {
			rs = append(rs, refuse(ledger.Invalid, "invite.email", "email", "Write one mail address, such as ada@example.org."))
		}
		if in.Role != ledger.Researcher && in.Role != ledger.PI {
			rs = append(rs, refuse(ledger.Invalid, "invite.role", "role", "Invite researchers or a PI; an admin grants the other roles."))
		}
		if len(rs) > 0 {
			return false, rs
		}
		if err := insertInvite(ctx, tx, cmd.Actor.Person, g, in); err != nil {
			return false, err
		}
		return true, audit(ctx, tx, cmd, act{Verb: "people.invite", Subject: subjectOf("group", g.ID), After: map[string]any{"role": in.Role}})
	})
	return err
}

// insertInvite keeps the invite's hash and puts its letter into the outbox; the
// letter is the only place that holds the secret.
func insertInvite(ctx context.Context, tx *Tx, by ledger.PersonID, g Group, in Invite) error {
	_, err := tx.Exec(ctx, `insert into invites (project_id, role, email, token_hash, invited_by, invited_at, expires_at) values ($1, $2, $3, $4, $5, $6, $7)`,
		g.ID, in.Role, in.Email, hashSecret(in.Secret), by, tx.Now, tx.Now.Add(inviteDays*86_400_000))
	if err != nil {
		return err
	}
	return mail(ctx, tx, letter{
		Kind: "invite", Subject: "You are invited to " + g.Title,
		Body: map[string]any{"email": in.Email, "group": g.Path, "role": in.Role, "secret": in.Secret},
	})
}

// InviteOffer is what an invite offers to whoever holds its secret.
type InviteOffer struct {
	Project ledger.GroupID
	Title   string
	Path    string
	Role    ledger.Role
}

// InviteOffer reads an invite that may still be accepted.
func (s *Store) InviteOffer(ctx context.Context, secret string) (InviteOffer, error) {
	var o InviteOffer
	err := s.pool.QueryRow(ctx, `select g.id, g.title, g.path, i.role from invites i join groups g on g.id = i.project_id
		where i.token_hash = $1 and i.accepted_at is null and i.expires_at > $2`, hashSecret(secret), s.Now()).Scan(&o.Project, &o.Title, &o.Path, &o.Role)
	if noRow(err) {
		return o, inviteGone()
	}
	if err != nil {
		return o, fmt.Errorf("store: invite: %w", err)
	}
	return o, nil
}

func inviteGone() *ledger.Refusal {
	return refuse(ledger.Missing, "invite.gone", "", "This invite was used, has expired or never existed. Ask for a new one.")
}

// AcceptInvite gives the actor the invite's role; an invite works once.
func (s *Store) AcceptInvite(ctx context.Context, cmd Command, secret string) (ledger.GroupID, error) {
	return runCommand(ctx, s, "accept invite", cmd, hashSecret(secret), func(tx *Tx) (ledger.GroupID, error) {
		var id int64
		var project ledger.GroupID
		var role ledger.Role
		var by ledger.PersonID
		err := tx.QueryRow(ctx, `select id, project_id, role, invited_by from invites where token_hash = $1 and accepted_at is null and expires_at > $2 for update`,
			hashSecret(secret), tx.Now).Scan(&id, &project, &role, &by)
		if noRow(err) {
			return 0, inviteGone()
		}
		if err != nil {
			return 0, err
		}
		if err := insertGrant(ctx, tx, RoleInput{Person: cmd.Actor.Person, Group: project, Role: role}, "invite", by); err != nil {
			return 0, err
		}
		if _, err := tx.Exec(ctx, `update invites set accepted_by = $2, accepted_at = $3 where id = $1`, id, cmd.Actor.Person, tx.Now); err != nil {
			return 0, err
		}
		return project, audit(ctx, tx, cmd, act{Verb: "people.invite.accept", Subject: subjectOf("group", project), After: map[string]any{"role": role}})
	})
}

// InviteRow is an invite as those who may invite see it.
type InviteRow struct {
	Project    ledger.GroupID
	Path       string
	Title      string
	Email      string
	Role       ledger.Role
	InvitedAt  ledger.Instant
	ExpiresAt  ledger.Instant
	AcceptedAt ledger.Instant
}

// Invites lists invites to projects where the actor may invite, newest first.
func (s *Store) Invites(ctx context.Context, actor ledger.Actor) ([]InviteRow, error) {
	rows, err := s.pool.Query(ctx, `select g.id, g.path, g.title, i.email, i.role, i.invited_at, i.expires_at, i.accepted_at
		from invites i join groups g on g.id = i.project_id order by i.id desc limit 1000`)
	if err != nil {
		return nil, fmt.Errorf("store: invites: %w", err)
	}
	all, err := collect[InviteRow]("invites", rows)
	now := s.Now()
	return slices.DeleteFunc(all, func(i InviteRow) bool { return actor.May(ledger.PeopleInvite, i.Path, now) != nil }), err
}
