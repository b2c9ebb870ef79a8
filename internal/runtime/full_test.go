package runtime_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/mount"
)

// TestFullDisk: on a full disk what runs goes on, what is known stays known, and what cannot be stored is an error that says so. With
// room again all is right, exits that came meanwhile too.
func TestFullDisk(t *testing.T) {
	n := prepareNode(t)
	n.killBound = time.Second
	data := filepath.Join(n.dir, "data")
	n.check(os.MkdirAll(data, 0o755))
	n.check(mount.Tmpfs(data, mount.TmpfsOptions{Size: 48 << 20, Mode: 0o755}))
	n.afterwards = func() { n.check(mount.Unmount(data)) }
	startNode(n)
	sb := n.run("full")
	kept, killed, gone := n.launch(sb, shell("kept", sleeper)), n.launch(sb, shell("killed", sleeper)), n.launch(sb, shell("gone", "while [ ! -e /dev/shm/go ]; do sleep 0.02; done; exit 6"))

	// Pages that the stores have and do not use take a little more: they are used up, too.
	var failed error
	for i := 0; failed == nil; i++ {
		if i > 300 {
			t.Fatal("the disk does not get full")
		}
		fill(t, filepath.Join(data, fmt.Sprint("fill", i)))
		_, failed = n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: n.sandboxConfig(fmt.Sprint("more", i))})
	}
	if !strings.Contains(failed.Error(), unix.ENOSPC.Error()) {
		t.Errorf("a full disk: %v", failed)
	}
	n.exec(kept, "touch", "/dev/shm/go")
	for _, err := range []error{n.tryStop(killed, 0), func() error { _, err := n.tryCreate(sb, shell("late", sleeper)); return err }()} {
		if err != nil && !strings.Contains(err.Error(), unix.ENOSPC.Error()) {
			t.Errorf("a full disk: %v", err)
		}
	}
	if st := n.sandboxStatus(sb); st.GetState() != cri.PodSandboxState_SANDBOX_READY {
		t.Error(st)
	}
	n.exec(kept, "true")

	freed, err := filepath.Glob(filepath.Join(data, "fill*"))
	n.check(err)
	for _, path := range freed {
		n.check(os.Remove(path))
	}
	if st := n.wait(gone); st.GetExitCode() != 6 {
		t.Errorf("an exit that came while the disk was full: %v", st)
	}
	n.check(n.tryStop(killed, 0))
	if st := n.status(killed); st.GetExitCode() != 137 {
		t.Error(st)
	}
	n.restart()
	for id, state := range map[string]cri.ContainerState{kept: cri.ContainerState_CONTAINER_RUNNING, killed: cri.ContainerState_CONTAINER_EXITED, gone: cri.ContainerState_CONTAINER_EXITED} {
		if st := n.status(id); st.GetState() != state {
			t.Errorf("after a restart: %v", st)
		}
	}
	n.launch(n.run("after"), shell("c", sleeper))
	n.check(n.tryStop(kept, 10))
	n.removeSandbox(sb)
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if errors.Is(err, unix.ENOSPC) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4096} {
		for block := make([]byte, size); err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
}
