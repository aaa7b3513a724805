package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/store"
)

// Config is what serve needs to know, from flags or TRANCHE_… variables.
type Config struct {
	DatabaseURL      string   `env:"TRANCHE_DATABASE_URL,DATABASE_URL" help:"Address of the database, e.g. postgres://db.example.org/tranche."`
	DatabasePassword string   `env:"TRANCHE_DATABASE_PASSWORD" help:"Password of the server's role tranche_app, if the address names none."`
	Listen           string   `env:"TRANCHE_LISTEN" default:"127.0.0.1:8080" help:"Address for people, programs and agents."`
	MetricsListen    string   `env:"TRANCHE_METRICS_LISTEN" default:"127.0.0.1:9090" help:"Address for Prometheus; empty switches it off."`
	PublicURL        string   `env:"TRANCHE_PUBLIC_URL" help:"The address people type, e.g. https://tranche.example.org."`
	Zone             string   `env:"TRANCHE_ZONE" default:"UTC" help:"Accounting zone, an IANA name such as Europe/Paris."`
	OIDCIssuer       string   `env:"TRANCHE_OIDC_ISSUER" help:"OpenID provider, e.g. https://login.example.org/realms/lab."`
	OIDCClientID     string   `env:"TRANCHE_OIDC_CLIENT_ID" help:"This server's client id there."`
	OIDCClientSecret string   `env:"TRANCHE_OIDC_CLIENT_SECRET" help:"And its secret."`
	OIDCName         string   `env:"TRANCHE_OIDC_NAME" default:"your institute's account" help:"Words on the sign-in button."`
	OIDCGroupsClaim  string   `env:"TRANCHE_OIDC_GROUPS_CLAIM" default:"groups" help:"Claim that lists a person's groups."`
	IdentityRoles    []string `env:"TRANCHE_IDENTITY_ROLES" sep:";" help:"Groups of the provider that carry a role at a path, as group=role@path with ; between them, e.g. gpu-admins=admin@/institute. They replace the ones of the last start."`
	RecordMiB        int64    `env:"TRANCHE_RECORD_MIB" default:"2048" help:"Room for cycle records, MiB; the oldest are dropped beyond it."`
	Hosts            []string `env:"TRANCHE_HOSTS" help:"Host headers to answer; empty answers the public address only."`
}

// Validate names every problem at once.
func (c *Config) Validate() error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if c.DatabaseURL == "" {
		problem("TRANCHE_DATABASE_URL is missing: give the database's address, e.g. postgres://db.example.org/tranche")
	} else if _, err := pgx.ParseConfig(c.DatabaseURL); err != nil {
		problem("TRANCHE_DATABASE_URL is no database address") // the error would show a password
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		problem("TRANCHE_LISTEN %q is not host:port", c.Listen)
	}
	if c.MetricsListen != "" {
		if _, _, err := net.SplitHostPort(c.MetricsListen); err != nil {
			problem("TRANCHE_METRICS_LISTEN %q is not host:port", c.MetricsListen)
		}
	}
	if c.RecordMiB < 16 {
		problem("TRANCHE_RECORD_MIB %d is below 16: not even one whole record may fit", c.RecordMiB)
	}
	if u, err := url.Parse(c.PublicURL); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || (u.Path != "" && u.Path != "/") {
		problem("TRANCHE_PUBLIC_URL %q is not an http or https address without a path", c.PublicURL)
	}
	if _, err := time.LoadLocation(c.Zone); err != nil {
		problem("TRANCHE_ZONE %q is not an IANA time zone such as Europe/Paris", c.Zone)
	}
	if u, err := url.Parse(c.OIDCIssuer); err != nil || u.Host == "" {
		problem("TRANCHE_OIDC_ISSUER %q is not the address of an OpenID provider: nobody could sign in", c.OIDCIssuer)
	}
	if c.OIDCClientID == "" {
		problem("TRANCHE_OIDC_CLIENT_ID is missing")
	}
	if _, err := identityRoles(c.IdentityRoles); err != nil {
		problem("TRANCHE_IDENTITY_ROLES: %w", err)
	}
	return errors.Join(problems...)
}

// identityRoles reads "group=role@path"; a group's name may hold "=" and "@".
func identityRoles(list []string) ([]store.IdentityRole, error) {
	var out []store.IdentityRole
	for _, text := range list {
		left, path, hasPath := cutLast(text, "@")
		group, role, hasRole := cutLast(left, "=")
		if !hasPath || !hasRole || group == "" || !strings.HasPrefix(path, "/") || !slices.Contains(ledger.Roles(), ledger.Role(role)) {
			return nil, fmt.Errorf("%q is not group=role@path, such as gpu-admins=admin@/institute", text)
		}
		out = append(out, store.IdentityRole{Group: group, Role: ledger.Role(role), Path: path})
	}
	return out, nil
}

// cutLast cuts s around the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// hosts are the Host headers that are answered.
func (c *Config) hosts() []string {
	if len(c.Hosts) > 0 {
		return c.Hosts
	}
	if u, err := url.Parse(c.PublicURL); err == nil {
		return []string{u.Host}
	}
	return nil
}

// version names the build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "development build"
	}
	return info.Main.Version
}
