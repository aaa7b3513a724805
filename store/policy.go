package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// policyVersions bounds the versions that are shown.
const policyVersions = 50

// PolicyVersion is one version of the policy: what was turned against the one before.
type PolicyVersion struct {
	Version int64
	At      ledger.Instant
	By      string // name of who made it; "" when unknown
	Why     string
	Turns   []scheduler.Turn
}

// readPolicy reads a stored policy. A knob that is newer than it has its default.
func readPolicy(version int64, text []byte) (scheduler.Policy, error) {
	policy := scheduler.DefaultPolicy()
	if err := json.Unmarshal(text, &policy); err != nil {
		return policy, fmt.Errorf("policy %d: %w", version, err)
	}
	policy.Version = version
	return policy, nil
}

// loadPolicy gives the newest policy, or the default before there is one.
func loadPolicy(ctx context.Context, tx *Tx) (scheduler.Policy, error) {
	var version int64
	var text []byte
	err := tx.QueryRow(ctx, `select version, policy from policies order by version desc limit 1`).Scan(&version, &text)
	if noRow(err) {
		return scheduler.DefaultPolicy(), nil
	}
	if err != nil {
		return scheduler.Policy{}, err
	}
	return readPolicy(version, text)
}

// SavePolicy makes a new version of the policy, from the version it was based on,
// and gives its number. Somebody else's newer version is a conflict; one that
// changes nothing is refused.
func (s *Store) SavePolicy(ctx context.Context, cmd Command, basedOn int64, policy scheduler.Policy, why string) (int64, error) {
	type content struct {
		BasedOn int64
		Policy  scheduler.Policy
		Why     string
	}
	why = strings.TrimSpace(why)
	return runCommand(ctx, s, "policy.save", cmd, content{basedOn, policy, why}, func(tx *Tx) (int64, error) {
		var root string
		if err := tx.QueryRow(ctx, `select path from groups where parent_id is null`).Scan(&root); err != nil {
			return 0, err
		}
		if refusal := cmd.Actor.May(ledger.PolicyWrite, root, tx.Now); refusal != nil {
			return 0, refusal
		}
		if _, err := tx.Exec(ctx, `lock table policies in share row exclusive mode`); err != nil {
			return 0, err
		}
		was, err := loadPolicy(ctx, tx)
		if err != nil {
			return 0, err
		}
		turns, refusals := checkPolicy(&was, &policy, basedOn, why)
		if len(refusals) > 0 {
			return 0, refusals
		}
		policy.Version = was.Version + 1
		text, err := json.Marshal(&policy)
		if err != nil {
			return 0, fmt.Errorf("policy: %w", err)
		}
		if _, err := tx.Exec(ctx, `insert into policies (version, policy, made_by, made_at, why) values ($1, $2, $3, $4, $5)`,
			policy.Version, text, cmd.Actor.Person, tx.Now, why); err != nil {
			return 0, err
		}
		before, after := map[string]string{}, map[string]string{}
		for i := range turns {
			k := &turns[i].Knob
			before[k.Name], after[k.Name] = k.Text(turns[i].From), k.Text(turns[i].To)
		}
		tx.Notify(channelCycle)
		return policy.Version, audit(ctx, tx, cmd, act{Verb: "policy.save", Subject: fmt.Sprintf("policy %d", policy.Version), Before: before, After: after})
	})
}

func checkPolicy(was, is *scheduler.Policy, basedOn int64, why string) ([]scheduler.Turn, ledger.Refusals) {
	refusals := is.Validate()
	if was.Version != basedOn {
		refusals = append(refusals, refuse(ledger.Conflict, "policy.newer", "based_on",
			fmt.Sprintf("Somebody saved version %d meanwhile; yours was made from version %d. Look at what changed, then make your change again.", was.Version, basedOn)))
	}
	if utf8.RuneCountInString(why) > 500 || why == "" {
		refusals = append(refusals, refuse(ledger.Invalid, "policy.why", "why", "Say in up to 500 characters why; it is kept with the change."))
	}
	turns := scheduler.Turned(was, is)
	if len(turns) == 0 && len(refusals) == 0 {
		refusals = append(refusals, refuse(ledger.Invalid, "policy.same", "why", "No knob differs from the policy that holds now."))
	}
	return turns, refusals
}

// PolicyHistory gives the newest versions, newest first, with what each turned.
func (s *Store) PolicyHistory(ctx context.Context) ([]PolicyVersion, error) {
	var out []PolicyVersion
	err := s.readTx(ctx, "policy history", func(tx *Tx) error {
		rows, err := tx.Query(ctx, `select p.version, p.made_at, coalesce(n.name, ''), p.why, p.policy
			from policies p left join person_names n on n.person_id = p.made_by order by p.version desc limit $1`, policyVersions+1)
		if err != nil {
			return err
		}
		var policies []scheduler.Policy
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (PolicyVersion, error) {
			var v PolicyVersion
			var text []byte
			if err := row.Scan(&v.Version, &v.At, &v.By, &v.Why, &text); err != nil {
				return v, err
			}
			policy, err := readPolicy(v.Version, text)
			policies = append(policies, policy)
			return v, err
		})
		if err != nil {
			return err
		}
		for i := range out {
			before := scheduler.DefaultPolicy()
			if i+1 < len(policies) {
				before = policies[i+1]
			}
			out[i].Turns = scheduler.Turned(&before, &policies[i])
		}
		out = out[:min(len(out), policyVersions)]
		return nil
	})
	return out, err
}

// PolicyPreview says what the next cycle would do otherwise under a policy, on
// what the dispatcher sees now.
func (s *Store) PolicyPreview(ctx context.Context, policy scheduler.Policy) (scheduler.PlanDiff, error) {
	if refusals := policy.Validate(); len(refusals) > 0 {
		return scheduler.PlanDiff{}, refusals
	}
	snap, err := s.Peek(ctx)
	if err != nil {
		return scheduler.PlanDiff{}, err
	}
	return scheduler.UnderPolicy(snap, policy), nil
}
