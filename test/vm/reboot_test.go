package main

import (
	"testing"
	"time"

	"monopod.dev/monopod/test/vm/machine"
)

// Devices over a reboot of the machine, which a power cut ends: the test in the machine is run in both boots, and passes in the second.
func TestDevicesOverAReboot(t *testing.T) {
	runTests(t, machine.Config{Boots: 2}, testRun{
		files: inBin(t, "monopod", "monopod-executor"),
		env:   []string{"MONOPOD_BIN=" + guestBin}, timeout: 20 * time.Minute,
		tests:    []machine.Tests{{Package: "./reboot"}},
		mustPass: "TestDevices",
	})
}
