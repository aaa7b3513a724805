package main

import (
	"errors"
	"syscall"
)

// inUse tells an address that another program listens on.
func inUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
