package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// MemberShare is a member's portion inside their project: jobs of one urgency are
// ordered by usage over share; the cap bounds charged GPUs at once, funded, in each
// pool (0 = no cap).
type MemberShare struct {
	Person  ledger.PersonID `json:"person"`
	Share   int64           `json:"share"` // 1 … 1,000; every member has 1 until told otherwise
	CapGPUs int64           `json:"cap_gpus"`
}

// SetMemberShare gives a member of a project a share and a cap; who leads the
// project may.
func (s *Store) SetMemberShare(ctx context.Context, cmd Command, project ledger.GroupID, m MemberShare) error {
	_, err := runCommand(ctx, s, "member.share", cmd, [2]any{project, m}, func(tx *Tx) (bool, error) {
		g, err := groupByID(ctx, tx, project)
		if err != nil {
			return false, err
		}
		if r := cmd.Actor.May(ledger.PeopleInvite, g.Path, tx.Now); r != nil {
			return false, r
		}
		if rs := m.check(); len(rs) > 0 {
			return false, rs
		}
		var member bool
		if err := tx.QueryRow(ctx, `select exists (select from role_grants r join groups top on top.id = r.group_id
				where r.person_id = $1 and r.revoked_at is null and (r.until is null or r.until > $3) and ($2 = top.path or starts_with($2, rtrim(top.path, '/') || '/')))`, m.Person, g.Path, tx.Now).Scan(&member); err != nil {
			return false, err
		}
		if !member {
			return false, refuse(ledger.Missing, "member.missing", "", "This person has no role in the project.")
		}
		before := MemberShare{Person: m.Person, Share: 1}
		err = tx.QueryRow(ctx, `select share, cap_gpus from member_shares where project_id = $1 and person_id = $2`, project, m.Person).Scan(&before.Share, &before.CapGPUs)
		if err != nil && !noRow(err) {
			return false, err
		}
		if _, err := tx.Exec(ctx, `insert into member_shares (project_id, person_id, share, cap_gpus) values ($1, $2, $3, $4)
			on conflict (project_id, person_id) do update set share = excluded.share, cap_gpus = excluded.cap_gpus`, project, m.Person, m.Share, m.CapGPUs); err != nil {
			return false, err
		}
		tx.Notify(channelCycle)
		return true, audit(ctx, tx, cmd, act{Verb: "member.share", Subject: fmt.Sprintf("group %d", project), Before: before, After: m})
	})
	return err
}

func (m *MemberShare) check() ledger.Refusals {
	var out ledger.Refusals
	if m.Share < 1 || m.Share > 1000 {
		out = append(out, refuse(ledger.Invalid, "member.share", "share", "A share is from 1 to 1000: with 2 a member may have twice what one with 1 has."))
	}
	if m.CapGPUs < 0 || m.CapGPUs > 1_000_000 {
		out = append(out, refuse(ledger.Invalid, "member.cap", "cap", "A cap is a number of GPUs; empty or 0 sets none."))
	}
	return out
}

// MemberShares gives the shares and caps of a project that differ from 1 and none.
func (s *Store) MemberShares(ctx context.Context, project ledger.GroupID) (map[ledger.PersonID]MemberShare, error) {
	out := map[ledger.PersonID]MemberShare{}
	err := s.readTx(ctx, "member shares", func(tx *Tx) error {
		rows, err := tx.Query(ctx, `select person_id, share, cap_gpus from member_shares where project_id = $1`, project)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[MemberShare])
		for _, m := range list {
			out[m.Person] = m
		}
		return err
	})
	return out, err
}

type memberShare struct {
	project ledger.GroupID
	member  ledger.PersonID
	share   int64
	capGPUs int64
}

// withShares adds the members' shares and caps, also for those who wait without usage.
func withShares(members []scheduler.MemberUsage, shares []memberShare, waiting []scheduler.Job) []scheduler.MemberUsage {
	type key struct {
		project ledger.GroupID
		member  ledger.PersonID
	}
	known := make(map[key]memberShare, len(shares))
	for _, m := range shares {
		known[key{m.project, m.member}] = m
	}
	compare := func(a, b scheduler.MemberUsage) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Project, b.Project), cmp.Compare(a.Member, b.Member))
	}
	for i := range members {
		m := known[key{members[i].Project, members[i].Member}]
		members[i].Share, members[i].CapGPUs = max(1, m.share), m.capGPUs
	}
	for i := range waiting {
		j := &waiting[i]
		if k := known[key{j.Project, j.Member}]; k.share > 1 || k.capGPUs > 0 {
			m := scheduler.MemberUsage{Pool: j.Pool, Project: j.Project, Member: j.Member, Share: k.share, CapGPUs: k.capGPUs}
			if at, ok := slices.BinarySearchFunc(members, m, compare); !ok {
				members = slices.Insert(members, at, m)
			}
		}
	}
	return members
}
