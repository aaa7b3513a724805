package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/store"
)

// setupCommand makes a new site usable: schema, root, first administrator and,
// when asked, one pool, the running quarter and a token for its nodes. It may run
// at every start: what is there stays as it is.
type setupCommand struct {
	migrateCommand `embed:""`

	Root       string `env:"TRANCHE_ROOT" default:"institute" help:"Short name of the tree's root."`
	Title      string `env:"TRANCHE_ROOT_TITLE" default:"Institute" help:"And its title."`
	Zone       string `env:"TRANCHE_ZONE" default:"UTC" help:"Accounting zone of the first period."`
	Issuer     string `env:"TRANCHE_OIDC_ISSUER" help:"OpenID provider that knows the first administrator."`
	FirstAdmin string `env:"TRANCHE_FIRST_ADMIN" help:"Subject (sub) of the first administrator there."`
	FirstPool  string `env:"TRANCHE_FIRST_POOL" help:"Name of a first pool of 8-GPU nodes; empty makes none."`
	Devices    int64  `env:"TRANCHE_FIRST_DEVICES" default:"8" help:"Devices the first period counts on in that pool."`
	EnrolToken string `env:"TRANCHE_ENROL_TOKEN" help:"Token with which nodes may join that pool for 31 days; empty makes none."`
}

// Validate names every problem at once.
func (c *setupCommand) Validate() error {
	var problems []error
	if c.Issuer == "" || c.FirstAdmin == "" {
		problems = append(problems, errors.New("TRANCHE_OIDC_ISSUER and TRANCHE_FIRST_ADMIN say who the first administrator is"))
	}
	if store.Slug(c.Root) != c.Root {
		problems = append(problems, fmt.Errorf("TRANCHE_ROOT %q is not a short name of lower-case letters, digits and hyphens", c.Root))
	}
	return errors.Join(problems...)
}

func (c *setupCommand) Run(ctx context.Context, t terminal) error {
	if err := c.migrateCommand.Run(ctx, t); err != nil {
		return err
	}
	s, err := store.Open(ctx, store.Config{URL: c.AdminURL, Password: c.Password, Clock: clock, Log: t.Log, MaxConns: 2})
	if err != nil {
		return err
	}
	defer s.Close()
	d := &seeding{s: s, issuer: c.Issuer}
	first := seedPerson{Subject: c.FirstAdmin, Name: "First administrator", Role: ledger.Admin, At: "/" + c.Root}
	if err := d.found(ctx, c.Root, c.Title, first); err != nil {
		return fmt.Errorf("first administrator: %w", err)
	}
	if c.FirstPool != "" {
		err = c.pool(ctx, d)
	}
	if err == nil {
		_, err = fmt.Fprintln(t.Out, "The site is set up; tranched serve may start.")
	}
	return err
}

// pool makes the first pool with a period and an enrolment token.
func (c *setupCommand) pool(ctx context.Context, d *seeding) error {
	pools, err := d.s.Pools(ctx)
	if err != nil || len(pools) > 0 {
		return err // this is not the first start
	}
	id, err := d.s.CreatePool(ctx, d.cmd("pool:"+c.FirstPool), store.Pool{
		Name: c.FirstPool, GPUModel: strings.ToUpper(c.FirstPool), RatePPM: 1_000_000,
		NodeGPUs: nodeDevices, NodeCPUMilli: nodeCPUMilli, NodeRAMMiB: nodeRAMMiB, NodeHBMMiB: 81_920,
	})
	if err != nil {
		return fmt.Errorf("first pool: %w", err)
	}
	d.pools[c.FirstPool] = id
	name, first, last, err := quarter(d.s.Now(), c.Zone)
	if err != nil {
		return err
	}
	err = d.openPeriod(ctx, store.PeriodInput{Name: name, First: first, Last: last, Zone: c.Zone}, []supply{{c.FirstPool, c.Devices, 950_000}})
	if err != nil {
		return fmt.Errorf("first period: %w", err)
	}
	if c.EnrolToken == "" {
		return nil
	}
	_, err = d.s.CreateEnrolToken(ctx, d.cmd("enrol:"+c.FirstPool), store.EnrolTokenInput{Pool: c.FirstPool, Hours: 24 * 31, Uses: 100, Secret: c.EnrolToken})
	return err
}

// ownerURL checks an address of the database's owner.
func ownerURL(address string) error {
	if address == "" {
		return errors.New("TRANCHE_ADMIN_URL is missing: migrations run as the database's owner, the server does not")
	}
	if _, err := pgx.ParseConfig(address); err != nil {
		return errors.New("TRANCHE_ADMIN_URL is no database address") // the error would show a password
	}
	return nil
}
