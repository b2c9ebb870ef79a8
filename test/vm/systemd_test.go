package main

import (
	"testing"
	"time"

	"monopod.dev/monopod/test/vm/machine"
)

// Both cgroup drivers where systemd is the first process: what it knows of pods and containers, and that it undoes nothing.
func TestCgroupDriversWithSystemd(t *testing.T) {
	runTests(t, machine.Config{Systemd: true}, testRun{
		files: inBin(t, "monopod-executor"),
		env:   []string{"MONOPOD_BIN=" + guestBin, "MONOPOD_SYSTEMD=1", "CI=true"}, timeout: 20 * time.Minute,
		tests:    []machine.Tests{{Package: "../../internal/runtime", Args: []string{"-test.run=^TestSystemdDriver$"}}},
		mustPass: "TestSystemdDriver",
	})
}
