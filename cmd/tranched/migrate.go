package main

import (
	"context"
	"fmt"

	"tranche/store"
)

// migrateCommand runs as the database's owner; serve never does.
type migrateCommand struct {
	AdminURL string `env:"TRANCHE_ADMIN_URL" help:"Address of the database as its owner, e.g. postgres://owner@db.example.org/tranche."`
	Password string `env:"TRANCHE_DATABASE_PASSWORD" help:"Password to give the server's role tranche_app; empty leaves it as it is."`
}

func (c *migrateCommand) Run(ctx context.Context, t terminal) error {
	if err := ownerURL(c.AdminURL); err != nil {
		return err
	}
	if err := store.Migrate(ctx, c.AdminURL, store.MigrateOptions{AppPassword: c.Password}); err != nil {
		return err
	}
	_, err := fmt.Fprintln(t.Out, "The database has this program's schema.")
	return err
}
