package main

import (
	"context"
	"strings"

	"tranche/web/api"
)

type policyCommand struct {
	Show    policyShowCommand    `cmd:"" default:"1" help:"List every knob with its value, range and default."`
	Set     policySetCommand     `cmd:"" help:"Turn knobs as a new version, or only say what the next cycle would do otherwise."`
	History policyHistoryCommand `cmd:"" help:"Say who turned which knob, when and why."`
}

type policyShowCommand struct{}

// Run lists the knobs.
func (policyShowCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	p, err := client.Policy(ctx)
	if err != nil {
		return err
	}
	return t.print(p, func(page *page) {
		page.line("version %d", p.Version)
		page.line("NAME\tVALUE\tDEFAULT\tMAY BE\tWHAT")
		for i := range p.Knobs {
			k := &p.Knobs[i]
			page.line("%s\t%s\t%s\t%s\t%s", k.Name, k.Value, k.Default, k.Range, k.Title)
		}
	})
}

type policySetCommand struct {
	Set     []string `arg:"" name:"knob" help:"NAME=VALUE, such as margin_ppm=10% or cap_ms=4h."`
	Why     string   `help:"Why; kept with the change. Needed to save."`
	Preview bool     `help:"Save nothing: say what the next cycle would do otherwise."`
}

// Help adds examples.
func (policySetCommand) Help() string {
	return `Examples:
  tranche policy set margin_ppm=10% --preview
  tranche policy set margin_ppm=10% evict_per_minute=60 --why "calmer nights"`
}

// Run previews or saves.
func (c *policySetCommand) Run(ctx context.Context, t *terminal) error {
	in := api.SetPolicy{Key: newKey(), Set: map[string]string{}, Why: c.Why, Preview: c.Preview}
	for _, word := range c.Set {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			return &usageError{word + " is not NAME=VALUE."}
		}
		in.Set[name] = value
	}
	client, err := t.client()
	if err != nil {
		return err
	}
	out, err := client.SetPolicy(ctx, in)
	if err != nil {
		return err
	}
	return t.print(out, func(p *page) {
		for _, turn := range out.Turns {
			p.line("%s", turn)
		}
		switch {
		case out.Saved > 0:
			p.line("saved as version %d", out.Saved)
		case len(out.Differences) == 0:
			p.line("Nothing would be different in the next cycle.")
		}
		for _, d := range out.Differences {
			p.line("%s", d.Text)
		}
	})
}

type policyHistoryCommand struct{}

// Run lists the versions.
func (policyHistoryCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	p, err := client.Policy(ctx)
	if err != nil {
		return err
	}
	return t.print(p.History, func(page *page) {
		if len(p.History) == 0 {
			page.line("Nobody has changed the policy.")
		}
		for i := range p.History {
			v := &p.History[i]
			page.line("version %d, %s by %s: %s", v.Version, v.At.Format("2006-01-02 15:04 MST"), v.By, v.Why)
			for _, turn := range v.Turns {
				page.line("  %s: %s -> %s", turn.Name, turn.From, turn.To)
			}
		}
	})
}
