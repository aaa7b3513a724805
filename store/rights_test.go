package store

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// The very pool that the server uses must not be able to change the books.
func TestPoolCannotChangeTheBooks(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	for _, table := range []string{"entries", "transfers", "seals", "audit"} {
		for _, statement := range []string{
			"update %s set %s = %s", "delete from %s where %s is null and %s is null", "truncate %s",
			"drop table %s", "alter table %s disable trigger all", "grant all on %s to public", "alter table %s owner to tranche_app",
		} {
			column := map[string]string{"entries": "kind", "transfers": "amount", "seals": "n", "audit": "verb"}[table]
			sql := fmt.Sprintf(statement, table)
			if statement[0] == 'u' || statement[:3] == "del" {
				sql = fmt.Sprintf(statement, table, column, column)
			}
			_, err := s.pool.Exec(t.Context(), sql)
			var pg *pgconn.PgError
			// 42501: insufficient privilege. Granting what one does not hold is a warning that grants nothing.
			if statement[:5] == "grant" && err == nil {
				continue
			}
			if !errors.As(err, &pg) || pg.Code != "42501" {
				t.Errorf("%s: %v, want a missing privilege", sql, err)
			}
		}
	}
	for _, sql := range []string{"create table mine (n int)", "set role tranche", "create role other", "update migration_sums set sha256 = ''"} {
		if _, err := s.pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s went through", sql)
		}
	}
}

// A database whose server role was made a superuser by hand is refused.
func TestOpenRefusesAnotherRole(t *testing.T) {
	t.Parallel()
	s, db := newStore(t)
	cfg := s.pool.Config()
	if cfg.ConnConfig.User != "tranche_app" {
		t.Errorf("the pool connects as %s", cfg.ConnConfig.User)
	}
	var timeouts, user string
	err := s.leaderPool.QueryRow(t.Context(), `select session_user, current_setting('statement_timeout') || ' ' || current_setting('lock_timeout')
		|| ' ' || current_setting('idle_in_transaction_session_timeout')`).Scan(&user, &timeouts)
	if err != nil || user != "tranche_app" || timeouts != "30s 5s 2s" {
		t.Errorf("leader pool: %s, timeouts %s, %v", user, timeouts, err)
	}
	if _, err := Open(t.Context(), Config{URL: db.URL}); err == nil {
		t.Error("opened without a clock")
	}
}
