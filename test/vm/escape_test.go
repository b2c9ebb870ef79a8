package main

import (
	"path/filepath"
	"testing"
	"time"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/vm/machine"
)

// coreOfEscape are the attacks that cgroup v2 answers in another way: memory.oom.group, which there is only here; the rules of devices, which are
// programs of the kernel's here; births in a cgroup, and the freezer. `make test-vm-all` runs all of them.
const coreOfEscape = "^(TestOutOfMemoryWithItsGroup|TestHostileNull|TestCVE2019_5736)$/^native$"

// The hostile containers, with the binaries as they are shipped.
func TestEscapeOnCgroupV2(t *testing.T) {
	files := inBin(t, "monopod", "monopod-executor")
	runc, err := harness.BuildRunc(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	files[filepath.Join(guestBin, "runc")] = runc
	onCgroupV2.runTests(t, testRun{
		files: files,
		env:   []string{"MONOPOD_BIN=" + guestBin, "MONOPOD_RUNC=" + filepath.Join(guestBin, "runc"), "CI=true"}, timeout: 20 * time.Minute,
		tests:    []machine.Tests{{Package: "../escape", Args: []string{"-test.short", "-test.run=" + coreOfEscape}}},
		mustPass: "TestOutOfMemoryWithItsGroup",
	})
}
