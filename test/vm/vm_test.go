package main

import (
	"path/filepath"
	"testing"
	"time"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/vm/machine"
)

// inBin are programs of this tree, by where the tests find them in the machine.
func inBin(t *testing.T, names ...string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, name := range names {
		files[filepath.Join(guestBin, name)] = harness.Bin(t, name)
	}
	return files
}

// guestBin is where programs are in the machine.
var guestBin = filepath.Join(machine.SourceRoot, "bin")

// onCgroupV2 is the machine of all tests that ask for pure cgroup v2 and nothing else.
var onCgroupV2 shared

// What looks at the host must find its way on pure cgroup v2 and an older kernel, too.
func TestPackagesOnCgroupV2(t *testing.T) {
	onCgroupV2.runTests(t, testRun{timeout: 10 * time.Minute, tests: []machine.Tests{{Package: "../../internal/host/probe"}, {Package: "../../internal/devices/cdi"}}})
}

// coreOfExecutor are the executor's tests of what cgroup v2 does in another way: to be born in a cgroup, to kill one, to count what was killed
// for want of memory, to see the cgroup from inside, to change limits.
const coreOfExecutor = "^(TestLifecycle|TestOOMKilled|TestKillAll|TestExec|TestWorkerDiesAtEachStep|TestKeeperAndWorkerDie|TestPodInit|TestUpdate|TestUpdateIsAllOrNothing|TestSameAsLibcontainer)$" +
	"/^(a pod's container|a cgroup namespace|executor)$" // of those that have cases: the ways to start, and the points to die at

// The executor and its table of deaths: the kernel's part of killing, reaping and counting is another one here.
func TestExecutorOnCgroupV2(t *testing.T) {
	onCgroupV2.runTests(t, testRun{
		files: inBin(t, "monopod-executor"), env: []string{"MONOPOD_BIN=" + guestBin}, timeout: 20 * time.Minute,
		tests: []machine.Tests{{Package: "../../internal/executor", Args: []string{"-test.run=" + coreOfExecutor}}},
	})
}

// The example, with the binaries as they are shipped.
func TestExampleOnCgroupV2(t *testing.T) {
	root, files := harness.Root(t), inBin(t, "monopod", "monopod-executor", "kubectl")
	files[filepath.Join(machine.SourceRoot, "examples")] = filepath.Join(root, "examples")
	files[filepath.Join(guestBin, "hello.tar")] = filepath.Join(root, "bin", "hello.tar")
	onCgroupV2.runTests(t, testRun{
		files: files, env: []string{"MONOPOD_BIN=" + guestBin, "CI=true"}, timeout: 20 * time.Minute,
		tests: []machine.Tests{{Package: "../e2e", Args: []string{"-test.run=^TestExample$"}}},
	})
}
