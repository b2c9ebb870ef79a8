package main

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/vm/guest"
	"monopod.dev/monopod/test/vm/machine"
)

// Both cgroup drivers where systemd is the first process: what it knows of pods and containers, and that it undoes nothing.
func TestCgroupDriversWithSystemd(t *testing.T) {
	build, bin := t.TempDir(), filepath.Join(machine.SourceRoot, "bin")
	init, err := machine.BuildInit(t.Context(), build)
	if err != nil {
		t.Fatal(err)
	}
	files, command, err := machine.Tests{Package: "../../internal/runtime", Args: []string{"-test.run=^TestSystemdDriver$"}}.Build(t.Context(), build)
	if err != nil {
		t.Fatal(err)
	}
	files[filepath.Join(bin, "monopod-executor")] = harness.Bin(t, "monopod-executor")
	var out strings.Builder
	const timeout = 10 * time.Minute
	ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, errors.New("the tests in the machine took longer than "+timeout.String()))
	defer cancel()
	res, err := machine.Run(ctx, machine.Config{
		Cache: machine.DefaultCache(), Init: init, Systemd: true, Files: files, Output: &out, Log: t.Logf,
		Job: guest.Job{Args: []string{"sh", "-c", command},
			Env: []string{machine.SlowVariable + "=" + strconv.Itoa(machine.DefaultSlow), "MONOPOD_BIN=" + bin, "MONOPOD_SYSTEMD=1", "CI=true"}},
	})
	if err != nil {
		t.Fatalf("%v\nthe output so far:\n%s", err, out.String())
	}
	if res.Code != 0 || !strings.Contains(out.String(), "--- PASS: TestSystemdDriver") {
		t.Errorf("exit code %d in the machine, whose output was\n%s", res.Code, out.String())
	}
	t.Logf("disk %.1fs, boot %.1fs, tests %.1fs", res.Prepare.Seconds(), res.Boot.Seconds(), res.Job.Seconds())
}
