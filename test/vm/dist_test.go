package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/vm/guest"
	"monopod.dev/monopod/test/vm/machine"
)

// archiveName is how hack/dist.sh names an archive.
var archiveName = regexp.MustCompile(`^monopod-.*-linux-([a-z0-9]+)\.tar\.gz$`)

// TestDist starts a node of the archives of `make dist` as INSTALL says, each on a machine of its architecture: the archives are named by MONOPOD_DIST, with
// colons between them.
func TestDist(t *testing.T) {
	named := os.Getenv("MONOPOD_DIST")
	if named == "" {
		t.Skip("MONOPOD_DIST names no archive: make test-dist makes them and runs this")
	}
	for _, archive := range filepath.SplitList(named) {
		t.Run(filepath.Base(archive), func(t *testing.T) {
			name := archiveName.FindStringSubmatch(filepath.Base(archive))
			if name == nil {
				t.Fatalf("%s is not named as an archive of make dist", archive)
			}
			startDist(t, archive, name[1])
		})
	}
}

// startDist unpacks an archive in a machine, starts the node and runs a pod.
func startDist(t *testing.T, archive, arch string) {
	t.Helper()
	build := t.TempDir()
	init, err := machine.BuildInit(t.Context(), build, arch)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Minute, errors.New("the node in the machine took longer than 20 minutes"))
	defer cancel()
	res, err := machine.Run(ctx, machine.Config{
		Arch: arch, Cache: machine.DefaultCache(), Init: init, BootTimeout: 5 * time.Minute, Output: &out, Log: t.Logf,
		Files: map[string]string{"/payload/monopod.tar.gz": archive, "/payload/hello.tar": helloFor(t, build, arch), "/payload/start.sh": "testdata/dist.sh"},
		Job:   guest.Job{Args: []string{"sh", "start.sh"}},
	})
	if err != nil {
		t.Fatalf("%v\nthe output so far:\n%s", err, out.String())
	}
	if res.Code != 0 || !strings.Contains(out.String(), "\na pod of "+arch+" ran\n") {
		t.Errorf("exit code %d in the machine", res.Code)
	}
	t.Logf("boot %.1fs, the node and its pod %.1fs\n%s", res.Boot.Seconds(), res.Job.Seconds(), out.String())
}

// helloFor makes the example's image for an architecture.
func helloFor(t *testing.T, dir, arch string) string {
	t.Helper()
	root, binary, image := harness.Root(t), filepath.Join(dir, "hello"), filepath.Join(dir, "hello.tar")
	run := func(env []string, args ...string) {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = root, append(append(os.Environ(), "CGO_ENABLED=0"), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run([]string{"GOARCH=" + arch}, "build", "-ldflags=-s -w", "-o", binary, "./examples/hello")
	run(nil, "run", "./examples/mkimage", "-binary", binary, "-arch", arch, "-name", "localhost/monopod/hello:latest", "-o", image)
	return image
}
