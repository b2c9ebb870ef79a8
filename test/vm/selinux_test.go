package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/vm/guest"
	"monopod.dev/monopod/test/vm/machine"
)

// TestSELinux: labels on a kernel that has SELinux and enforces a policy. What they are to be and to do is said by the test in the machine.
func TestSELinux(t *testing.T) {
	dir := t.TempDir()
	init, err := machine.BuildInit(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	files, command, err := machine.SELinux(t.Context(), machine.DefaultCache(), "testdata/selinux.cil", dir)
	if err != nil {
		t.Fatal(err)
	}
	runc, err := harness.BuildRunc(dir)
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(machine.SourceRoot, "bin")
	files[filepath.Join(bin, "monopod-executor")], files[filepath.Join(bin, "runc")] = harness.Bin(t, "monopod-executor"), runc
	// The other ways to start containers are libcontainer's and runc's; what the options do is no matter of the way.
	filter, timeout := "^TestSELinux$/^native$", 10*time.Minute
	if os.Getenv("MONOPOD_VM_ALL") != "" {
		filter, timeout = "^TestSELinux$", 25*time.Minute
	}
	for _, ts := range []machine.Tests{{Package: "../../internal/host/selinux"}, {Package: "../../internal/runtime", Args: []string{"-test.run=" + filter}}} {
		put, run, err := ts.Build(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(files, put)
		command += " && (" + run + ")"
	}
	var out strings.Builder
	ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, errors.New("the tests in the machine took longer than "+timeout.String()))
	defer cancel()
	res, err := machine.Run(ctx, machine.Config{
		Cache: machine.DefaultCache(), Init: init, Files: files, KernelArgs: machine.SELinuxArgs, Output: &out, Log: t.Logf,
		Job: guest.Job{Args: []string{"sh", "-c", command + " || { dmesg | grep denied | tail -n 60; exit 1; }"}, Env: []string{
			machine.SlowVariable + "=" + strconv.Itoa(machine.DefaultSlow), "MONOPOD_BIN=" + bin, "MONOPOD_RUNC=" + filepath.Join(bin, "runc"), "MONOPOD_TEST_SELINUX=1"}},
	})
	if err != nil {
		t.Fatalf("%v\nthe output so far:\n%s", err, out.String())
	}
	if res.Code != 0 || !strings.Contains(out.String(), "--- PASS: TestSELinux") {
		t.Errorf("exit code %d in the machine, whose output was\n%s", res.Code, out.String())
	}
	t.Logf("disk %.1fs, boot %.1fs, tests %.1fs", res.Prepare.Seconds(), res.Boot.Seconds(), res.Job.Seconds())
}
