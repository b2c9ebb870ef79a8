package main

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/vm/guest"
	"monopod.dev/monopod/test/vm/machine"
)

// testRun is what runTests runs, and where.
type testRun struct {
	// machine is the kind of machine: its first process, its kernel's parameters, its files. runTests fills in the rest.
	machine machine.Config
	env     []string
	timeout time.Duration
	tests   []machine.Tests
	// before is a shell command without which there is nothing to test, onFailure one that tells more of a failure; "" is none.
	before, onFailure string
	// mustPass is the test that must have passed: to be skipped is not enough. "" is any.
	mustPass string
}

// script runs the commands of all tests, also when one has failed.
func (r testRun) script(commands []string) string {
	lines := []string{"failed=0"}
	for _, c := range commands {
		lines = append(lines, "("+c+") || failed=1")
	}
	script := strings.Join(append(lines, "[ $failed = 0 ]"), "\n")
	if r.before != "" {
		script = r.before + " && {\n" + script + "\n}"
	}
	if r.onFailure != "" {
		script = "{\n" + script + "\n} || { " + r.onFailure + "; exit 1; }"
	}
	return script
}

// runTests runs the tests of packages in a machine, and fails when one of them does.
func runTests(t *testing.T, r testRun) {
	t.Helper()
	build := t.TempDir()
	cfg := r.machine
	var err error
	if cfg.Init, err = machine.BuildInit(t.Context(), build, machine.NativeArch); err != nil {
		t.Fatal(err)
	}
	cfg.Files = map[string]string{}
	maps.Copy(cfg.Files, r.machine.Files)
	var commands []string
	for _, ts := range r.tests {
		put, command, err := ts.Build(t.Context(), build)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(cfg.Files, put)
		commands = append(commands, command)
	}
	var out strings.Builder
	cfg.Cache, cfg.Output, cfg.Log = machine.DefaultCache(), &out, t.Logf
	cfg.Job = guest.Job{
		Args: []string{"sh", "-c", r.script(commands)},
		Env:  append([]string{machine.SlowVariable + "=" + strconv.Itoa(machine.DefaultSlow)}, r.env...),
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), r.timeout, errors.New("the tests in the machine took longer than "+r.timeout.String()))
	defer cancel()
	res, err := machine.Run(ctx, cfg)
	if err != nil {
		t.Fatalf("%v\nthe output so far:\n%s", err, out.String())
	}
	if res.Code != 0 || !strings.Contains(out.String(), "--- PASS: "+r.mustPass) {
		t.Errorf("exit code %d in the machine, whose output was\n%s", res.Code, out.String())
	}
	t.Logf("disk %.1fs, boot %.1fs, tests %.1fs", res.Prepare.Seconds(), res.Boot.Seconds(), res.Job.Seconds())
}

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

// What looks at the host must find its way on pure cgroup v2 and an older kernel, too.
func TestPackagesOnCgroupV2(t *testing.T) {
	runTests(t, testRun{timeout: 10 * time.Minute, tests: []machine.Tests{{Package: "../../internal/host/probe"}, {Package: "../../internal/devices/cdi"}}})
}

// coreOfExecutor are the executor's tests of what cgroup v2 does in another way: to be born in a cgroup, to kill one, to count what was killed
// for want of memory, to see the cgroup from inside, to change limits.
const coreOfExecutor = "^(TestLifecycle|TestOOMKilled|TestKillAll|TestExec|TestWorkerDiesAtEachStep|TestKeeperAndWorkerDie|TestPodInit|TestUpdate|TestUpdateIsAllOrNothing|TestSameAsLibcontainer)$" +
	"/^(a pod's container|a cgroup namespace|executor)$" // of those that have cases: the ways to start, and the points to die at

// The executor and its table of deaths: the kernel's part of killing, reaping and counting is another one here.
func TestExecutorOnCgroupV2(t *testing.T) {
	runTests(t, testRun{
		machine: machine.Config{Files: inBin(t, "monopod-executor")},
		env:     []string{"MONOPOD_BIN=" + guestBin}, timeout: 20 * time.Minute,
		tests: []machine.Tests{{Package: "../../internal/executor", Args: []string{"-test.run=" + coreOfExecutor}}},
	})
}

// The example, with the binaries as they are shipped.
func TestExampleOnCgroupV2(t *testing.T) {
	root, files := harness.Root(t), inBin(t, "monopod", "monopod-executor", "kubectl")
	files[filepath.Join(machine.SourceRoot, "examples")] = filepath.Join(root, "examples")
	files[filepath.Join(guestBin, "hello.tar")] = filepath.Join(root, "bin", "hello.tar")
	runTests(t, testRun{
		machine: machine.Config{Files: files},
		env:     []string{"MONOPOD_BIN=" + guestBin, "CI=true"}, timeout: 20 * time.Minute,
		tests: []machine.Tests{{Package: "../e2e", Args: []string{"-test.run=^TestExample$"}}},
	})
}
