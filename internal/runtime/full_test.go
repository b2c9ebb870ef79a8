package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/test/smallfs"
)

// greedy takes every byte of the file system of its writable layer, and what becomes free there.
const greedy = "trap 'exit 0' TERM; i=0; while :; do i=$((i+1)); dd if=/dev/zero of=/greedy$i bs=64k 2>/dev/null; echo full $i; done"

// TestFullDirectories: with a full data or run directory what runs goes on, exits are told, as they were, across restarts of all parts too, and
// pods can be stopped and removed. What is new is refused by name. With room again all is right.
func TestFullDirectories(t *testing.T) {
	for _, c := range []struct {
		dir, kind string
		greedy    bool // a container fills it, and takes what becomes free
	}{{"run", "tmpfs", false}, {"run", "ext4", false}, {"data", "tmpfs", false}, {"data", "ext4", false}, {"data", "tmpfs", true}, {"data", "ext4", true}} {
		if !slices.Contains(smallfs.Kinds, c.kind) {
			continue // this machine has none
		}
		t.Run(fmt.Sprintf("%s, %s, greedy container: %v", c.dir, c.kind, c.greedy), func(t *testing.T) { testFull(t, c.dir, c.kind, c.greedy) })
	}
}

func testFull(t *testing.T, name, kind string, hostile bool) {
	n := prepareNode(t)
	dir := filepath.Join(n.dir, name)
	n.check(os.MkdirAll(dir, 0o755))
	n.afterwards = smallfs.MountUntil(t, kind, 64<<20, dir)
	startNode(n)
	const endsWhenTold = "while [ ! -e /dev/shm/%s ]; do sleep 0.02; done; echo last words; exit 6"
	sb, gone := n.run("full"), n.run("gone")
	kept, killed, asked := n.launch(sb, shell("kept", sleeper)), n.launch(sb, shell("killed", sleeper)), n.launch(sb, shell("asked", sleeper))
	ends, later := n.launch(sb, shell("ends", fmt.Sprintf(endsWhenTold, "first"))), n.launch(sb, shell("later", fmt.Sprintf(endsWhenTold, "second")))
	waits, late := n.create(sb, shell("waits", "exit 5")), n.create(sb, shell("late", "exit 7"))
	n.launch(gone, shell("c", sleeper))
	n.launch(n.run("other"), shell("c", sleeper))

	var empty func()
	if hostile {
		bad := n.run("bad")
		id := n.launch(bad, shell("greedy", greedy))
		n.eventually("the disk to be full", func() bool { return len(n.logLines(n.status(id).GetLogPath())) > 3 })
		empty = func() { n.removeSandbox(bad) }
	} else {
		empty = smallfs.Fill(t, dir)
	}
	// A client that goes on to make pods is refused before the room is gone that is kept for what runs.
	var refused error
	for i := 0; refused == nil; i++ {
		if i > 500 {
			t.Fatal("on a full disk pods are made")
		}
		_, refused = n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: n.sandboxConfig(fmt.Sprint("more", i))})
	}
	wantCode(t, refused, codes.ResourceExhausted, unix.ENOSPC.Error(), dir)
	if _, err := n.tryCreate(sb, shell("new", sleeper)); err == nil {
		t.Error("on a full disk a container was made")
	}
	exit := func(id string, code int32) {
		t.Helper()
		if st := n.wait(id); st.GetExitCode() != code {
			t.Errorf("exit %v, want %d", st, code)
		}
	}
	// What is there can be used, and ends as it ends.
	n.exec(kept, "touch", "/dev/shm/first")
	exit(ends, 6)
	n.check(n.tryStop(killed, 0))
	exit(killed, 137)
	n.check(n.tryStop(asked, 60))
	exit(asked, 0)
	n.check(n.tryStart(waits))
	exit(waits, 5)
	n.remove(killed)
	n.removeSandbox(gone)
	// The worker dies, and with it what only its memory had; while there is none another container ends.
	before, err := n.executor.Hello(n.ctx)
	n.check(err)
	n.killWorker()
	n.eventually("another worker", func() bool {
		now, err := n.executor.Hello(n.ctx)
		return err == nil && now.WorkerPID != before.WorkerPID
	})
	n.exec(kept, "touch", "/dev/shm/second")
	exit(later, 6)
	n.restart()
	for id, code := range map[string]int32{ends: 6, later: 6, asked: 0, waits: 5} {
		exit(id, code)
	}
	n.check(n.tryStart(late))
	exit(late, 7)
	if st := n.status(kept); st.GetState() != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("after a restart: %v", st)
	}
	n.exec(kept, "true")
	if lines := n.logLines(n.status(ends).GetLogPath()); !strings.HasSuffix(lines[len(lines)-1], " last words") {
		t.Errorf("log %q", lines)
	}
	n.removeSandbox(sb)

	empty()
	n.eventually("what containers have left is removed", func() bool {
		left, err := os.ReadDir(filepath.Join(n.dir, "data/containers", tree.BinName))
		return len(left) == 0 && (err == nil || os.IsNotExist(err))
	})
	n.launch(n.run("after"), shell("c", sleeper))
	n.removeEverySandbox()
	n.wantNothing()
}

// removeEverySandbox removes all pods.
func (n *node) removeEverySandbox() {
	n.Helper()
	list, err := n.rt.ListPodSandbox(n.ctx, &cri.ListPodSandboxRequest{})
	n.check(err)
	for _, sb := range list.GetItems() {
		n.removeSandbox(sb.GetId())
	}
}
