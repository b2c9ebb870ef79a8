package executor_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/test/harness"
)

// A process that hangs in the kernel, where no signal reaches it, holds up nobody but its own container: not the calls
// for others, and not the next worker.
func TestProcessHangsInTheKernel(t *testing.T) {
	n := newNode(t)
	fs := harness.MountHanging(t, filepath.Join(n.dir, "hang"))
	req := n.bundle("a", func(s *specs.Spec) {
		s.Linux.Namespaces = s.Linux.Namespaces[1:] // without a PID namespace
		s.Mounts = append(s.Mounts, specs.Mount{Destination: "/tmp/hang", Type: "bind", Source: fs.Dir, Options: []string{"rbind"}})
	}, "sh", "-c", "cat /tmp/hang/hang & read x; exit 5")
	req.Stdin = true
	n.start(req)
	select {
	case <-fs.Asked:
	case <-n.ctx().Done():
		t.Fatal("nobody looked at the file")
	}

	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	if err := n.c.Kill(short(), protocol.KillRequest{ID: "a", Signal: int(unix.SIGKILL), All: true}); err == nil {
		t.Error("all processes were killed")
	}
	if e := n.exit("a"); e.Code != 137 {
		t.Errorf("exit %+v, want 137: its first process does not hang", e)
	}
	if err := n.c.Delete(short(), "a"); err == nil {
		t.Error("a container was deleted whose process hangs")
	}
	others := func(id ids.ContainerID) {
		t.Helper()
		begin := time.Now()
		if e := n.run(n.bundle(id, nil, "sh", "-c", "exit 3")); e.Code != 3 {
			t.Errorf("another container: exit %+v", e)
		}
		if err := n.c.Delete(n.ctx(), id); err != nil {
			t.Errorf("another container: delete: %v", err)
		}
		if took := time.Since(begin); took > 9*time.Second*time.Duration(slow()) { // who waits for a process that hangs waits for ten
			t.Errorf("another container took %s", took)
		}
	}
	others("b")
	n.killWorker() // the next one finishes what Delete has begun, and hangs there
	others("c")
	if _, err := n.c.List(short()); err != nil {
		t.Error("list: ", err)
	}
	fs.Release()
	eventually(t, "the container is deleted", func() bool { return n.c.Delete(short(), "a") == nil })
}
