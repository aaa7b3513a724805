package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"tranche/store"
)

// doctorCommand checks a site from the server's own place.
type doctorCommand struct {
	Config `embed:""`
}

// finding is one thing that was looked at.
type finding struct {
	what string
	err  error
}

func (c *doctorCommand) Run(ctx context.Context, t terminal) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	findings := c.database(ctx, t)
	findings = append(findings, finding{"the sign-in provider answers", c.provider(ctx)})
	failed := false
	for _, f := range findings {
		verdict := "ok     " + f.what
		if f.err != nil {
			failed, verdict = true, "failed "+f.what+": "+f.err.Error()
		}
		if _, err := fmt.Fprintln(t.Out, verdict); err != nil {
			return err
		}
	}
	if failed {
		return errFailed
	}
	return nil
}

// database looks at the database as serve would use it.
func (c *doctorCommand) database(ctx context.Context, t terminal) []finding {
	s, err := store.Open(ctx, store.Config{URL: c.DatabaseURL, Password: c.DatabasePassword, Clock: clock, Log: t.Log, MaxConns: 2})
	found := []finding{{"the database takes the server's role, which cannot change the books", err}}
	if err != nil {
		return found
	}
	defer s.Close()
	health, err := s.Health(ctx)
	if err != nil {
		return append(found, finding{"the database has the schema", err})
	}
	found = append(found, finding{"the database has the schema", nil})
	skew := time.Duration(health.DatabaseClock-s.Real()) * time.Microsecond
	found = append(found, finding{"the clocks of server and database agree", nonzero(skew.Abs() > 2*time.Second,
		"they differ by %s: let both follow the same time service", skew.Round(time.Millisecond))})
	found = append(found, finding{"the tree has a root", nonzero(!health.HasRoot, "there is none: run tranched setup")})
	found = append(found, finding{"a period is open", nonzero(!health.HasPeriod, "no period covers today: an admin opens one under Periods")})
	found = append(found, finding{"a server dispatches", nonzero(health.Leader == "", "none does: is tranched serve running?")})
	return append(found, finding{"nodes report", nonzero(health.NodesSilent > 0, "%d of %d were not heard for a minute", health.NodesSilent, health.Nodes)})
}

func nonzero(bad bool, format string, args ...any) error {
	if !bad {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// provider asks for the sign-in provider's own description.
func (c *doctorCommand) provider(ctx context.Context) error {
	client := &http.Client{Timeout: 10 * time.Second}
	_, err := oidc.NewProvider(oidc.ClientContext(ctx, client), c.OIDCIssuer)
	if err == nil {
		return nil
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(text)
}
