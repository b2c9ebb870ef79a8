package main

import (
	"testing"
	"time"

	"monopod.dev/monopod/test/vm/machine"
)

// Devices over a reboot of the machine, which a power cut ends: the test in the machine is run in both boots, and passes in the second.
func TestDevicesOverAReboot(t *testing.T) {
	runTests(t, testRun{
		machine: machine.Config{Files: inBin(t, "monopod", "monopod-executor"), Boots: 2},
		env:     []string{"MONOPOD_BIN=" + guestBin}, timeout: 20 * time.Minute,
		tests:    []machine.Tests{{Package: "./reboot"}},
		mustPass: "TestDevices",
	})
}
