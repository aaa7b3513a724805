package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"tranche/ledger"
	"tranche/web/api"
)

type membersCommand struct {
	List membersListCommand `cmd:"" default:"withargs" help:"List a project's members with their shares and caps."`
	Set  membersSetCommand  `cmd:"" help:"Give a member a share or a cap; the next cycle goes by it."`
}

type membersListCommand struct {
	Project string `arg:"" help:"Path of the project."`
}

// Help adds examples.
func (membersListCommand) Help() string {
	return `Examples:
  tranche members /vision/detect

Jobs of one urgency go to the member who has used least for their share; a cap
bounds the GPUs a member is charged for at once in each pool.`
}

// Run prints the members.
func (c *membersListCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	got, err := client.Members(ctx, c.Project)
	if err != nil {
		return err
	}
	return t.print(got, func(p *page) {
		p.line("MEMBER\tNAME\tROLE\tSHARE\tCAP\tGPU-HOURS IN %s\tUNTIL", lookback(got.Lookback))
		for i := range got.Members {
			m := &got.Members[i]
			p.line("%s\t%s\t%s\t%d\t%s\t%s\t%s", memberKey(m), m.Name, strings.Join(m.Roles, ", "), m.Share, capText(m.Cap), m.Used.Hours(), strings.TrimPrefix(until(m.Until), " until "))
		}
	})
}

// lookback writes the span of past usage that counts, for the head of a column.
func lookback(ms int64) string {
	const day = 24 * 3_600_000
	if ms%day == 0 {
		return strconv.FormatInt(ms/day, 10) + " DAYS"
	}
	return strings.ToUpper(span(ms))
}

// memberKey is what names a member in a command: the mail where one may see it.
func memberKey(m *api.Member) string {
	if m.Mail != "" {
		return m.Mail
	}
	return strconv.FormatInt(int64(m.Person), 10)
}

func capText(gpus int64) string {
	if gpus == 0 {
		return "none"
	}
	return strconv.FormatInt(gpus, 10)
}

type membersSetCommand struct {
	Project string    `arg:"" help:"Path of the project."`
	Person  string    `arg:"" help:"The member's mail, name or number, as the list shows them."`
	Share   int64     `help:"1 to 1000: with 2 a member may have twice what one with 1 has." placeholder:"N"`
	Cap     *gpuLimit `help:"GPUs charged at once in each pool, or none." placeholder:"N|none"`
}

// gpuLimit is a number of GPUs, or none.
type gpuLimit int64

// UnmarshalText reads "8" or "none".
func (g *gpuLimit) UnmarshalText(text []byte) error {
	if string(text) == "none" {
		*g = 0
		return nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is no cap: write a number of GPUs, or none", text)
	}
	*g = gpuLimit(n)
	return nil
}

// Help adds examples.
func (membersSetCommand) Help() string {
	return `Examples:
  tranche members set /vision/detect kofi@example.org --share 2
  tranche members set /vision/detect "Kofi Mensah" --cap 8
  tranche members set /vision/detect kofi@example.org --cap none

What is not given stays as it is.`
}

// Run sets share and cap.
func (c *membersSetCommand) Run(ctx context.Context, t *terminal) error {
	if c.Share == 0 && c.Cap == nil {
		return &usageError{"say what to set: --share N, --cap N or --cap none"}
	}
	client, err := t.client()
	if err != nil {
		return err
	}
	now, err := client.Members(ctx, c.Project)
	if err != nil {
		return err
	}
	m, err := findMember(now.Members, c.Person)
	if err != nil {
		return err
	}
	in := api.SetMember{Key: newKey(), Project: c.Project, Person: m.Person, Share: m.Share, Cap: m.Cap}
	if c.Share != 0 {
		in.Share = c.Share
	}
	if c.Cap != nil {
		in.Cap = int64(*c.Cap)
	}
	got, err := client.SetMember(ctx, in)
	if err != nil {
		return err
	}
	return t.print(got, func(p *page) {
		p.line("%s in %s: share %d, cap %s", m.Name, got.Project, in.Share, capText(in.Cap))
	})
}

// findMember finds who is meant by a mail, a name or a number.
func findMember(members []api.Member, who string) (*api.Member, error) {
	var found []*api.Member
	number, err := strconv.ParseInt(who, 10, 64)
	for i := range members {
		m := &members[i]
		if err == nil && m.Person == ledger.PersonID(number) || strings.EqualFold(m.Mail, who) && m.Mail != "" || strings.EqualFold(m.Name, who) {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("%s holds no role in this project itself; tranche members lists who does", who)
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("%d members are called %s; use the mail or the number", len(found), who)
}
