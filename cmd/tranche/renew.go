package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tranche/ledger"
	"tranche/web/api"
)

// answerWithin is how long an answer may take: a few cycles.
const answerWithin = 30 * time.Second

type renewCommand struct {
	ID  int64         `arg:"" help:"Job number."`
	For time.Duration `help:"Protect it from now for so long; default: its declared minimum." placeholder:"2h"`
}

// Help adds examples.
func (renewCommand) Help() string {
	return `Examples:
  tranche renew 1234
  tranche renew 1234 --for 2h

Granted if nobody who goes first in the order could have its devices and the
project can pay; else it says who or what stands against it, and exits 1.`
}

// Run asks, and waits for the dispatcher's answer.
func (c *renewCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	id := ledger.JobID(c.ID)
	j, err := client.Renew(ctx, id, api.Renew{Key: newKey(), ForMS: c.For.Milliseconds()})
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for err == nil && j.Renewal != nil && j.Renewal.Pending {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the dispatcher has not answered yet; see tranche why %d", id)
		case <-tick.C:
			j, err = client.Job(ctx, id)
		}
	}
	if err != nil {
		return err
	}
	if j.Renewal == nil || j.Renewal.Answer == "" {
		return errors.New("the job ended before it was answered")
	}
	if !j.Renewal.Granted {
		return errors.New(j.Renewal.Answer)
	}
	return t.print(j, func(p *page) { p.line("%s", j.Renewal.Answer) })
}
