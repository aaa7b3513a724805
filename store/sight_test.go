package store

import (
	"fmt"
	"slices"
	"testing"

	"tranche/ledger"
)

// tenants are two projects of one pool, with jobs that alternate and a reader who
// may see the first.
func tenants(t *testing.T) (*site, *ledger.Sight) {
	t.Helper()
	k := newSite(t, 1)
	k.project(t, "a", 100)
	k.project(t, "b", 100)
	for i := range 6 {
		for n, project := range []string{"a", "b", "b"} {
			k.submit(t, project, 1, 8, 3_600_000, func(s *Submission) { s.Name = fmt.Sprint(project, i, n) })
		}
	}
	k.cycle(t)
	sight := ledger.SightAt("/lab/a", true)
	return k, &sight
}

// A list under a closed policy is the list of an institute where the others are
// not: same lines, same counts, same pages.
func TestListsCountOnlyWhatIsSeen(t *testing.T) {
	t.Parallel()
	k, sight := tenants(t)
	for _, state := range []string{"", "waiting", "running"} {
		var want []ledger.JobID
		own, err := k.Jobs(t.Context(), JobQuery{Project: "/lab/a", State: state})
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range own.Jobs {
			want = append(want, j.ID)
		}
		var got []ledger.JobID
		for q := (JobQuery{Sight: sight, State: state, Limit: 2}); ; {
			page, err := k.Jobs(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if page.Waiting != own.Waiting || page.Running != own.Running || page.Newer != (q.Before != 0) {
				t.Errorf("%q: %d wait, %d run, newer %v; want %d, %d", state, page.Waiting, page.Running, page.Newer, own.Waiting, own.Running)
			}
			for _, j := range page.Jobs {
				got = append(got, j.ID)
			}
			if page.Older != (len(got) < len(want)) {
				t.Errorf("%q: after %d of %d jobs, older is %v", state, len(got), len(want), page.Older)
			}
			if !page.Older {
				break
			}
			q.Before = got[len(got)-1]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: pages give %v, want %v", state, got, want)
		}
	}
	all, err := k.Jobs(t.Context(), JobQuery{})
	if err != nil || all.Waiting+all.Running != 18 {
		t.Errorf("without a sight: %d wait, %d run, %v", all.Waiting, all.Running, err)
	}
	if _, err := k.Jobs(t.Context(), JobQuery{Sight: sight, Project: "/lab/b"}); err == nil || err.Error() != "There is no program or project /lab/b." {
		t.Errorf("asked for another project: %v", err)
	}
}

// Pages of roles are cut after what may not be seen is left out.
func TestRolesComeInFullPages(t *testing.T) {
	t.Parallel()
	k, sight := tenants(t)
	k.db.Exec(t, `insert into persons (issuer, subject, created_at) select 'i', 'p' || n, '2026-10-01' from generate_series(1, 9) n`)
	k.db.Exec(t, `insert into role_grants (person_id, role, group_id, granted_at)
		select p.id, 'researcher', g.id, '2026-10-01' from persons p join groups g on g.slug = case when p.id % 2 = 0 then 'a' else 'b' end where p.subject like 'p%'`)
	var paths []string
	for offset := int64(0); ; offset += 2 {
		rows, err := k.People(t.Context(), PeopleQuery{Sight: sight, Offset: offset, Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			paths = append(paths, r.Path)
		}
		if len(rows) < 2 {
			break
		}
	}
	if want := []string{"/lab/a", "/lab/a", "/lab/a", "/lab/a", "/lab/a", "/lab", "/lab", "/lab"}; !slices.Equal(paths, want) {
		t.Errorf("roles at %q, want %q", paths, want)
	}
}

// Cursors that name no job lead through the same order.
func TestOrderIsTheSameByPlace(t *testing.T) {
	t.Parallel()
	k, _ := tenants(t)
	walk := func(next func(PoolOrder) string) (ids []ledger.JobID) {
		t.Helper()
		for after := ""; ; {
			o, err := k.PoolOrder(t.Context(), 1, after, 4)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range o.Rows {
				ids = append(ids, j.ID)
			}
			if after = next(o); after == "" {
				return ids
			}
		}
	}
	byJob, byPlace := walk(func(o PoolOrder) string { return o.Next }), walk(func(o PoolOrder) string { return o.Skip })
	if len(byJob) != 17 || !slices.Equal(byJob, byPlace) {
		t.Errorf("by job %v, by place %v", byJob, byPlace)
	}
	for _, cursor := range []string{"@", "@0", "@-1", "@x", "@99999999999"} {
		if _, err := k.PoolOrder(t.Context(), 1, cursor, 4); err == nil {
			t.Errorf("the cursor %q is taken", cursor)
		}
	}
}
