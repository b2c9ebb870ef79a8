package executor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/test/smallfs"
)

// TestExitsOnFullDisk: when not a byte can be written where the executor's records are, exits are known whoever sees them and whoever dies
// after that, containers can be started and deleted, and what is new is refused and leaves nothing.
func TestExitsOnFullDisk(t *testing.T) {
	for _, kind := range smallfs.Kinds {
		t.Run(kind, func(t *testing.T) {
			n := newNode(t)
			if err := n.c.Shutdown(n.ctx(), protocol.ShutdownRequest{}); err != nil {
				t.Fatal(err)
			}
			n.cfg.Dir = t.TempDir()
			smallfs.Mount(t, kind, 8<<20, n.cfg.Dir)
			eventually(t, "the first executor is gone", func() bool { _, err := os.Stat(n.cfg.Socket); return os.IsNotExist(err) })
			n.launch()
			tell := map[ids.ContainerID]*os.File{}
			pids := map[ids.ContainerID]int{}
			for id, code := range map[ids.ContainerID]int{"seen": 3, "away": 7, "last": 9} {
				req := n.bundle(id, nil, "sh", "-c", fmt.Sprintf("read x; exit %d", code))
				req.Stdin = true
				pids[id] = n.start(req)
				f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", pids[id]), os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				tell[id] = f
			}
			end := func(id ids.ContainerID) {
				t.Helper()
				if _, err := tell[id].WriteString("\n"); err != nil {
					t.Fatal(err)
				}
				awaitEnd(t, pids[id])
			}
			want := func(id ids.ContainerID, code int) {
				t.Helper()
				if e := n.exit(id); e.Code != code || e.Reason != "" {
					t.Errorf("exit of %s: %+v, want %d", id, e, code)
				}
			}
			if _, err := n.c.Create(n.ctx(), n.bundle("waits", nil, "sh", "-c", "exit 5")); err != nil {
				t.Fatal(err)
			}
			smallfs.Fill(t, n.cfg.Dir)
			end("seen")
			want("seen", 3)
			if _, err := n.c.Start(n.ctx(), "waits"); err != nil {
				t.Fatal(err)
			}
			want("waits", 5)
			_, err := n.c.Create(n.ctx(), n.bundle("new", nil, "true"))
			if !errdefs.IsResourceExhausted(err) {
				t.Errorf("a new container: %v", err)
			}
			if _, err := os.Stat(filepath.Join(n.cfg.Dir, "containers/new")); !os.IsNotExist(err) {
				t.Errorf("of a container that was refused something is left: %v", err)
			}
			// The keeper sees an exit while there is no worker.
			h := n.hello()
			halt(t, h.KeeperPID)
			n.signal(h.WorkerPID, unix.SIGKILL)
			awaitEnd(t, h.WorkerPID)
			end("away")
			n.signal(h.KeeperPID, unix.SIGCONT)
			want("away", 7)
			// And both die after another one.
			end("last")
			want("last", 9)
			h = n.hello()
			halt(t, h.KeeperPID)
			n.signal(h.WorkerPID, unix.SIGKILL)
			n.signal(h.KeeperPID, unix.SIGKILL)
			awaitEnd(t, h.WorkerPID)
			awaitEnd(t, h.KeeperPID)
			n.launch()
			for id, code := range map[ids.ContainerID]int{"seen": 3, "waits": 5, "away": 7, "last": 9} {
				want(id, code)
				if err := n.c.Delete(n.ctx(), id); err != nil {
					t.Errorf("delete %s: %v", id, err)
				}
			}
			for _, name := range []string{"journal", "containers"} {
				if left, err := os.ReadDir(filepath.Join(n.cfg.Dir, name)); err != nil || len(left) > 0 {
					t.Errorf("left in %s: %v, %v", name, left, err)
				}
			}
			h = n.hello()
			if err := n.c.Shutdown(n.ctx(), protocol.ShutdownRequest{}); err != nil {
				t.Fatal(err)
			}
			n.down = true
			awaitEnd(t, h.KeeperPID) // and only then the disk can go
		})
	}
}

func (n *node) signal(pid int, sig unix.Signal) {
	n.t.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		n.t.Fatal(err)
	}
}
