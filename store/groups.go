package store

import (
	"context"

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
		return g, refuse(ledger.Missing, "group.missing", "", "There is no such program or project.")
	}
	return g, err
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
