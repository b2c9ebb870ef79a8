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

// runTests runs the tests of packages in a machine that has the files and the environment, and fails when one of them does.
func runTests(t *testing.T, files map[string]string, env []string, timeout time.Duration, tests ...machine.Tests) {
	t.Helper()
	build := t.TempDir()
	init, err := machine.BuildInit(t.Context(), build)
	if err != nil {
		t.Fatal(err)
	}
	all := maps.Clone(files)
	if all == nil {
		all = map[string]string{}
	}
	var commands []string
	for _, ts := range tests {
		put, command, err := ts.Build(t.Context(), build)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(all, put)
		commands = append(commands, "("+command+") || failed=1")
	}
	var out strings.Builder
	ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, errors.New("the tests in the machine took longer than "+timeout.String()))
	defer cancel()
	res, err := machine.Run(ctx, machine.Config{
		Cache: machine.DefaultCache(), Init: init, Files: all, Output: &out, Log: t.Logf,
		Job: guest.Job{
			Args: []string{"sh", "-c", "failed=0\n" + strings.Join(commands, "\n") + "\nexit $failed"},
			Env:  append([]string{machine.SlowVariable + "=" + strconv.Itoa(machine.DefaultSlow)}, env...),
		},
	})
	if err != nil {
		t.Fatalf("%v\nthe output so far:\n%s", err, out.String())
	}
	if res.Code != 0 {
		t.Errorf("exit code %d in the machine, whose output was\n%s", res.Code, out.String())
	}
	t.Logf("disk %.1fs, boot %.1fs, tests %.1fs", res.Prepare.Seconds(), res.Boot.Seconds(), res.Job.Seconds())
}

// What looks at the host must find its way on pure cgroup v2 and an older kernel, too.
func TestPackagesOnCgroupV2(t *testing.T) {
	runTests(t, nil, nil, 5*time.Minute,
		machine.Tests{Package: "../../internal/host/probe"},
		machine.Tests{Package: "../../internal/devices/cdi"},
	)
}

// coreOfExecutor are the executor's tests of what cgroup v2 does in another way: to be born in a cgroup, to kill one, to count what was killed
// for want of memory, to see the cgroup from inside, to change limits.
const coreOfExecutor = "^(TestLifecycle|TestOOMKilled|TestKillAll|TestExec|TestWorkerDiesAtEachStep|TestKeeperAndWorkerDie|TestPodInit|TestUpdate|TestUpdateIsAllOrNothing|TestSameAsLibcontainer)$" +
	"/^(a pod's container|a cgroup namespace|executor)$" // of those that have cases: the ways to start, and the points to die at

// The executor and its table of deaths: the kernel's part of killing, reaping and counting is another one here.
func TestExecutorOnCgroupV2(t *testing.T) {
	runExecutor(t, 10*time.Minute, "-test.run="+coreOfExecutor)
}

func runExecutor(t *testing.T, timeout time.Duration, args ...string) {
	t.Helper()
	bin := filepath.Join(machine.SourceRoot, "bin")
	runTests(t, map[string]string{filepath.Join(bin, "monopod-executor"): harness.Bin(t, "monopod-executor")},
		[]string{"MONOPOD_BIN=" + bin}, timeout, machine.Tests{Package: "../../internal/executor", Args: args})
}

// The example, with the binaries as they are shipped.
func TestExampleOnCgroupV2(t *testing.T) {
	root := harness.Root(t)
	bin := filepath.Join(machine.SourceRoot, "bin")
	files := map[string]string{
		filepath.Join(machine.SourceRoot, "examples"): filepath.Join(root, "examples"),
		filepath.Join(bin, "hello.tar"):               filepath.Join(root, "bin", "hello.tar"),
	}
	for _, name := range []string{"monopod", "monopod-executor", "kubectl"} {
		files[filepath.Join(bin, name)] = harness.Bin(t, name)
	}
	runTests(t, files, []string{"MONOPOD_BIN=" + bin, "CI=true"}, 10*time.Minute,
		machine.Tests{Package: "../e2e", Args: []string{"-test.run=^TestExample$"}})
}
