package main

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/vm/machine"
)

// TestSELinux: labels on a kernel that has SELinux and enforces a policy. What they are to be and to do is said by the test in the machine.
func TestSELinux(t *testing.T) {
	dir := t.TempDir()
	files, enforce, err := machine.SELinux(t.Context(), machine.DefaultCache(), "testdata/selinux.cil", dir)
	if err != nil {
		t.Fatal(err)
	}
	runc, err := harness.BuildRunc(dir)
	if err != nil {
		t.Fatal(err)
	}
	guestRunc := filepath.Join(guestBin, "runc")
	files[guestRunc] = runc
	maps.Copy(files, inBin(t, "monopod-executor"))
	// The other ways to start containers are libcontainer's and runc's; what the options do is no matter of the way.
	filter, timeout := "^TestSELinux$/^native$", 10*time.Minute
	if os.Getenv("MONOPOD_VM_ALL") != "" {
		filter, timeout = "^TestSELinux$", 25*time.Minute
	}
	runTests(t, machine.Config{KernelArgs: machine.SELinuxArgs}, testRun{
		files: files,
		env:   []string{"MONOPOD_BIN=" + guestBin, "MONOPOD_RUNC=" + guestRunc, "MONOPOD_TEST_SELINUX=1"}, timeout: timeout,
		before: enforce, onFailure: "dmesg | grep denied | tail -n 60",
		tests:    []machine.Tests{{Package: "../../internal/host/selinux"}, {Package: "../../internal/runtime", Args: []string{"-test.run=" + filter}}},
		mustPass: "TestSELinux",
	})
}
