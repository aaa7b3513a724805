package main

import (
	"os"
	"testing"

	"tranche/scheduler/agent"
)

// The tests' own program is the launcher of the jobs that its simulated nodes run.
func TestMain(m *testing.M) {
	agent.LaunchIfAsked()
	os.Exit(m.Run())
}
