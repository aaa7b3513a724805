package store

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"tranche/ledger"
)

// Group is one program or project as it stands.
type Group struct {
	ID            ledger.GroupID
	Parent        ledger.GroupID // 0: the root
	Project       bool
	Slug          string
	Title         string
	Path          string
	CostCentre    string
	OvercommitPPM int64
	CreatedAt     ledger.Instant
	SuspendedAt   ledger.Instant // 0: not suspended
	ArchivedAt    ledger.Instant // 0: alive
}

const groupColumns = `g.id, coalesce(g.parent_id, 0), g.kind = 'project', g.slug, g.title, g.path, g.cost_centre, g.overcommit_ppm, g.created_at, g.suspended_at, g.archived_at`

func (g *Group) fields() []any {
	return []any{&g.ID, &g.Parent, &g.Project, &g.Slug, &g.Title, &g.Path, &g.CostCentre, &g.OvercommitPPM, &g.CreatedAt, &g.SuspendedAt, &g.ArchivedAt}
}

// groupByID reads one group, or refuses.
func groupByID(ctx context.Context, tx *Tx, id ledger.GroupID) (Group, error) {
	var g Group
	err := tx.QueryRow(ctx, `select `+groupColumns+` from groups g where g.id = $1`, id).Scan(g.fields()...)
	if noRow(err) {
		return g, missingGroup()
	}
	return g, err
}

func missingGroup() *ledger.Refusal {
	return refuse(ledger.Missing, "group.missing", "", "There is no such program or project.")
}

func groupByPath(ctx context.Context, tx *Tx, path string) (Group, error) {
	var g Group
	err := tx.QueryRow(ctx, `select `+groupColumns+` from groups g where g.path = $1`, path).Scan(g.fields()...)
	if noRow(err) {
		return g, refuse(ledger.Missing, "group.missing", "", "There is no program or project "+path+".", "path", path)
	}
	return g, err
}

// Group reads one group; an unknown id is refused as missing.
func (s *Store) Group(ctx context.Context, id ledger.GroupID) (Group, error) {
	var g Group
	err := s.readTx(ctx, "group", func(tx *Tx) error {
		var err error
		g, err = groupByID(ctx, tx, id)
		return err
	})
	return g, err
}

// Root reads the tree's root; before one was founded it is refused as missing.
func (s *Store) Root(ctx context.Context) (Group, error) {
	var g Group
	err := s.readTx(ctx, "root", func(tx *Tx) error {
		err := tx.QueryRow(ctx, `select `+groupColumns+` from groups g where g.parent_id is null`).Scan(g.fields()...)
		if noRow(err) {
			return refuse(ledger.Missing, "root.missing", "", "This Tranche has no tree yet; its operator founds one with the seed or the admin command.")
		}
		return err
	})
	return g, err
}

// FoundTree makes the root program of an empty tree, or gives the one there is.
func (s *Store) FoundTree(ctx context.Context, slug, title string) (ledger.GroupID, error) {
	var id ledger.GroupID
	err := s.inTx(ctx, "found tree", func(tx *Tx) error {
		_, err := tx.Exec(ctx, `insert into groups (kind, slug, title, path, created_at) values ('program', $1, $2, $3, $4) on conflict do nothing`,
			slug, title, "/"+slug, tx.Now)
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, `select id from groups where parent_id is null`).Scan(&id)
	})
	return id, err
}

// GroupInput describes a new program or project.
type GroupInput struct {
	Parent     ledger.GroupID
	Project    bool
	Title      string
	Slug       string // "" makes one from the title
	CostCentre string
}

// CreateGroup makes a program or project below a program.
func (s *Store) CreateGroup(ctx context.Context, cmd Command, in GroupInput) (ledger.GroupID, error) {
	return runCommand(ctx, s, "create group", cmd, in, func(tx *Tx) (ledger.GroupID, error) {
		parent, err := groupByID(ctx, tx, in.Parent)
		if err != nil {
			return 0, err
		}
		if r := cmd.Actor.May(ledger.TreeWrite, parent.Path, tx.Now); r != nil {
			return 0, r
		}
		g, err := insertGroup(ctx, tx, parent, in)
		if err != nil {
			return 0, err
		}
		return g.ID, audit(ctx, tx, cmd, act{
			Verb: "group.create", Subject: subjectOf("group", g.ID),
			After: map[string]any{"path": g.Path, "title": g.Title, "project": in.Project, "cost_centre": in.CostCentre},
		})
	})
}

// insertGroup checks the input and makes the row.
func insertGroup(ctx context.Context, tx *Tx, parent Group, in GroupInput) (Group, error) {
	in.Title, in.CostCentre = strings.TrimSpace(in.Title), strings.TrimSpace(in.CostCentre)
	var rs ledger.Refusals
	if n := utf8.RuneCountInString(in.Title); n < 1 || n > 200 {
		rs = append(rs, refuse(ledger.Invalid, "group.title", "name", "Write a name of 1 to 200 characters."))
	}
	if utf8.RuneCountInString(in.CostCentre) > 100 {
		rs = append(rs, refuse(ledger.Invalid, "group.cost_centre", "cost_centre", "A cost centre has at most 100 characters."))
	}
	if parent.Project {
		rs = append(rs, refuse(ledger.Invalid, "group.parent", "parent", "Projects have nothing below them; choose a program."))
	}
	if parent.ArchivedAt != 0 {
		rs = append(rs, refuse(ledger.Conflict, "group.archived", "parent", "This program is archived; choose another."))
	}
	if in.Slug == "" {
		in.Slug = Slug(in.Title)
	}
	if in.Slug == "" && len(rs) == 0 {
		rs = append(rs, refuse(ledger.Invalid, "group.slug", "name", "Use at least one letter from a to z or digit in the name."))
	}
	if len(rs) > 0 {
		return Group{}, rs
	}
	kind := "program"
	if in.Project {
		kind = "project"
	}
	g := Group{
		Parent: parent.ID, Project: in.Project, Slug: in.Slug, Title: in.Title, Path: parent.Path + "/" + in.Slug,
		CostCentre: in.CostCentre, OvercommitPPM: 1_000_000, CreatedAt: tx.Now,
	}
	err := tx.QueryRow(ctx, `insert into groups (parent_id, kind, slug, title, path, cost_centre, created_at)
		values ($1, $2, $3, $4, $5, $6, $7) returning id`, g.Parent, kind, g.Slug, g.Title, g.Path, g.CostCentre, tx.Now).Scan(&g.ID)
	return g, err
}

// Slug makes a short name from a title: lower-case letters and digits, everything
// else a hyphen, at most 63 characters. It is "" when nothing is left.
func Slug(title string) string {
	var b strings.Builder
	gap := false
	for _, r := range strings.ToLower(title) {
		if (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9') {
			if gap && b.Len() > 0 {
				b.WriteByte('-')
			}
			b.WriteRune(r)
			gap = false
		} else {
			gap = true
		}
		if b.Len() >= 62 {
			break
		}
	}
	return b.String()
}

// RenameGroup changes a group's title and cost centre; its path, which the books
// and addresses use, stays.
func (s *Store) RenameGroup(ctx context.Context, cmd Command, id ledger.GroupID, title, costCentre string) error {
	title, costCentre = strings.TrimSpace(title), strings.TrimSpace(costCentre)
	return s.changeGroup(ctx, cmd, "rename", id, [2]string{title, costCentre}, func(tx *Tx, g Group) (any, error) {
		if n := utf8.RuneCountInString(title); n < 1 || n > 200 {
			return nil, refuse(ledger.Invalid, "group.title", "name", "Write a name of 1 to 200 characters.")
		}
		_, err := tx.Exec(ctx, `update groups set title = $2, cost_centre = $3 where id = $1`, id, title, costCentre)
		return map[string]any{"title": title, "cost_centre": costCentre}, err
	})
}

// SuspendGroup stops new jobs of a group from starting, or lets them start again.
// What runs goes on and is charged.
func (s *Store) SuspendGroup(ctx context.Context, cmd Command, id ledger.GroupID, suspend bool) error {
	return s.changeGroup(ctx, cmd, "suspend", id, suspend, func(tx *Tx, _ Group) (any, error) {
		at := ledger.Instant(0)
		if suspend {
			at = tx.Now
		}
		_, err := tx.Exec(ctx, `update groups set suspended_at = $2 where id = $1`, id, at)
		tx.Notify("tranche_cycle")
		return map[string]any{"suspended": suspend}, err
	})
}

// ArchiveGroup ends a group. Its row stays as a tombstone, because the books and
// fair-share usage point at it. Children and live jobs must be gone before.
func (s *Store) ArchiveGroup(ctx context.Context, cmd Command, id ledger.GroupID) error {
	return s.changeGroup(ctx, cmd, "archive", id, nil, func(tx *Tx, g Group) (any, error) {
		if g.Parent == 0 {
			return nil, refuse(ledger.Conflict, "group.root", "", "The root of the tree stays.")
		}
		var children, jobs int
		err := tx.QueryRow(ctx, `select (select count(*) from groups where parent_id = $1 and archived_at is null),
			(select count(*) from jobs where project_id = $1 and state in ('pending', 'paused', 'live'))`, id).Scan(&children, &jobs)
		if err != nil {
			return nil, err
		}
		if children > 0 || jobs > 0 {
			return nil, refuse(ledger.Conflict, "group.in_use", "",
				fmt.Sprintf("%s still has %d groups below it and %d jobs that wait or run. Archive the groups and end the jobs first.", g.Title, children, jobs))
		}
		_, err = tx.Exec(ctx, `update groups set archived_at = $2 where id = $1 and archived_at is null`, id, tx.Now)
		return map[string]any{"archived": true}, err
	})
}

// changeGroup is what changes of a group share: key, lock, leave, audit. change
// gives what the audit shall hold as the state afterwards.
func (s *Store) changeGroup(ctx context.Context, cmd Command, verb string, id ledger.GroupID, content any, change func(*Tx, Group) (any, error)) error {
	_, err := runCommand(ctx, s, verb+" group", cmd, []any{id, content}, func(tx *Tx) (bool, error) {
		g, err := lockGroup(ctx, tx, id)
		if err != nil {
			return false, err
		}
		if r := cmd.Actor.May(ledger.TreeWrite, g.Path, tx.Now); r != nil {
			return false, r
		}
		after, err := change(tx, g)
		if err != nil {
			return false, err
		}
		return true, audit(ctx, tx, cmd, act{
			Verb: "group." + verb, Subject: subjectOf("group", id),
			Before: map[string]any{"title": g.Title, "cost_centre": g.CostCentre, "overcommit_ppm": g.OvercommitPPM, "suspended_at": g.SuspendedAt}, After: after,
		})
	})
	return err
}

// lockGroup reads a group and keeps others from changing or splitting it until
// the transaction ends.
func lockGroup(ctx context.Context, tx *Tx, id ledger.GroupID) (Group, error) {
	if _, err := tx.Exec(ctx, `select from groups where id = $1 for no key update`, id); err != nil {
		return Group{}, err
	}
	return groupByID(ctx, tx, id)
}

// Groups lists living groups in preorder: parents before children, siblings by title.
func (s *Store) Groups(ctx context.Context) ([]Group, error) {
	rows, err := s.pool.Query(ctx, `select `+groupColumns+` from groups g where g.archived_at is null order by string_to_array(g.path, '/')`)
	if err != nil {
		return nil, fmt.Errorf("store: groups: %w", err)
	}
	return collect[Group]("groups", rows)
}

// Ancestry gives a group's ancestors, root first, with the group itself last.
func (s *Store) Ancestry(ctx context.Context, path string) ([]Group, error) {
	rows, err := s.pool.Query(ctx, `select `+groupColumns+` from groups g where $1 = g.path or starts_with($1, g.path || '/') order by length(g.path)`, path)
	if err != nil {
		return nil, fmt.Errorf("store: ancestry: %w", err)
	}
	return collect[Group]("ancestry", rows)
}

// Pool is one pool's terms.
type Pool struct {
	ID           ledger.PoolID
	Name         string
	GPUModel     string // "" in CPU-only pools
	RatePPM      int64
	NodeGPUs     int64
	NodeCPUMilli int64
	NodeRAMMiB   int64
	NodeHBMMiB   int64 // per device
	Demand
}

// Demand is what a job of a pool asks for per GPU when its owner does not say; parts
// of a GPU in proportion.
type Demand struct {
	NetMbps  int64 `json:"net_mbps"`  // Mbit/s
	StoMbps  int64 `json:"sto_mbps"`  // MB/s
	IOCMilli int64 `json:"ioc_milli"` // processors that move data
}

const poolColumns = `id, name, gpu_model, rate_ppm, node_gpus, node_cpu_milli, node_ram_mib, node_hbm_mib, gpu_net_mbps, gpu_sto_mbps, gpu_ioc_milli`

// Pools lists all pools by name.
func (s *Store) Pools(ctx context.Context) ([]Pool, error) {
	rows, err := s.pool.Query(ctx, `select `+poolColumns+` from pools order by name`)
	if err != nil {
		return nil, fmt.Errorf("store: pools: %w", err)
	}
	return collect[Pool]("pools", rows)
}

// CreatePool makes a pool. Its node numbers are the reference node's: charged
// parts are taken from it.
func (s *Store) CreatePool(ctx context.Context, cmd Command, in Pool) (ledger.PoolID, error) {
	return runCommand(ctx, s, "create pool", cmd, in, func(tx *Tx) (ledger.PoolID, error) {
		var root Group
		if err := tx.QueryRow(ctx, `select `+groupColumns+` from groups g where g.parent_id is null`).Scan(root.fields()...); err != nil {
			return 0, err
		}
		if r := cmd.Actor.May(ledger.PoolWrite, root.Path, tx.Now); r != nil {
			return 0, r
		}
		if rs := checkPool(in); len(rs) > 0 {
			return 0, rs
		}
		var id ledger.PoolID
		err := tx.QueryRow(ctx, `insert into pools (name, gpu_model, rate_ppm, node_gpus, node_cpu_milli, node_ram_mib, node_hbm_mib, created_at,
				gpu_net_mbps, gpu_sto_mbps, gpu_ioc_milli) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) returning id`,
			in.Name, in.GPUModel, in.RatePPM, in.NodeGPUs, in.NodeCPUMilli, in.NodeRAMMiB, in.NodeHBMMiB, tx.Now, in.NetMbps, in.StoMbps, in.IOCMilli).Scan(&id)
		if err != nil {
			return 0, err
		}
		in.ID = id
		return id, audit(ctx, tx, cmd, act{Verb: "pool.create", Subject: subjectOf("pool", id), After: in})
	})
}

func checkPool(in Pool) ledger.Refusals {
	var rs ledger.Refusals
	if Slug(in.Name) != in.Name || in.Name == "" {
		rs = append(rs, refuse(ledger.Invalid, "pool.name", "name", "A pool's name has lower-case letters, digits and single hyphens, such as h100."))
	}
	if r := (ledger.Rate{MilliGPU: 1, PPM: in.RatePPM}).Check(); r != nil {
		rs = append(rs, refuse(ledger.Invalid, r.Code, "rate_ppm", r.Detail))
	}
	for _, n := range []struct {
		field, what string
		value, low  int64
	}{{"node_gpus", "GPUs", in.NodeGPUs, 0}, {"node_cpu_milli", "cores", in.NodeCPUMilli, 1}, {"node_ram_mib", "memory", in.NodeRAMMiB, 1}, {"node_hbm_mib", "memory per GPU", in.NodeHBMMiB, 0}} {
		if n.value < n.low || n.value > 1<<40 {
			rs = append(rs, refuse(ledger.Invalid, "pool.node", n.field, "Say how much "+n.what+" one node of the pool has."))
		}
	}
	return append(rs, in.check()...)
}
