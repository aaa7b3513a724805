package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"tranche/store"
)

func (c *demoCommand) replay(ctx context.Context, t terminal) error {
	return errors.New("x")
}

var _ = fmt.Sprint
var _ = os.Args
var _ = store.Open
