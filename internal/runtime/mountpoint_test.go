package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/mount"
)

// beside lists the mounts below the node's directory that are on the same mount as the layers of images and containers. The kernel goes through them at each
// overlay and bind mount.
func (n *node) beside() (found []string) {
	n.Helper()
	all, err := mountinfo.GetMounts(nil)
	n.check(err)
	holder := &mountinfo.Info{}
	for _, m := range all {
		if (n.dir == m.Mountpoint || strings.HasPrefix(n.dir, strings.TrimSuffix(m.Mountpoint, "/")+"/")) && len(m.Mountpoint) >= len(holder.Mountpoint) {
			holder = m
		}
	}
	for _, m := range all {
		if rel, below := strings.CutPrefix(m.Mountpoint, n.dir+"/"); below && m.Parent == holder.ID {
			found = append(found, rel)
		}
	}
	slices.Sort(found)
	return found
}

// TestPodsMountApart: however many pods there are, nothing of them is mounted where the layers are, and nothing has to be looked through for the next one.
func TestPodsMountApart(t *testing.T) {
	n := newNode(t)
	own := []string{"run/containers", "run/sandboxes"}
	var all []string
	for range 2 {
		for _, mode := range []cri.NamespaceMode{cri.NamespaceMode_POD, cri.NamespaceMode_CONTAINER} {
			sb := n.runPID(fmt.Sprint("pod", len(all)), mode)
			n.launch(sb, pidMode(shell("c", sleeper), mode, ""))
			all = append(all, sb)
		}
		if got := n.beside(); !slices.Equal(got, own) {
			t.Errorf("with %d pods there are the mounts %v, want %v", len(all), got, own)
		}
		for _, sb := range all {
			if is, err := mount.Is(filepath.Join(n.dir, "run/sandboxes", sb, "ns")); err != nil || is {
				t.Errorf("the pins of sandbox %s have a mount of their own: %t, %v", sb, is, err)
			}
		}
		n.restart()
	}
	for _, sb := range all {
		n.removeSandbox(sb)
	}
	if got := n.beside(); !slices.Equal(got, own) {
		t.Errorf("without pods there are the mounts %v, want %v", got, own)
	}
}

// TestMountsOfAVersionBefore: pods whose mounts are not on the sandboxes' own go on and go away, others come, and the mount is made when none of them is left.
func TestMountsOfAVersionBefore(t *testing.T) {
	n := prepareNode(t)
	stray := filepath.Join(n.dir, "run/sandboxes/stray")
	n.check(os.MkdirAll(stray, 0o700))
	n.check(mount.Tmpfs(stray, mount.TmpfsOptions{Size: 1 << 20}))
	startNode(n) // with something mounted there it is as it was in that version
	sb := n.runPID("before", cri.NamespaceMode_POD)
	id := n.launch(sb, pidMode(shell("c", sleeper), cri.NamespaceMode_POD, ""))
	mounts := []string{"run/containers", "run/sandboxes/" + sb + "/ns", "run/sandboxes/" + sb + "/tmpfs"}
	if got := n.beside(); !slices.Equal(got, mounts) {
		t.Fatalf("the mounts are %v, want %v", got, mounts)
	}
	n.restart()
	if st := n.sandboxStatus(sb).GetState(); st != cri.PodSandboxState_SANDBOX_READY {
		t.Errorf("after a restart the sandbox is %s", st)
	}
	if got := n.exec(id, "hostname"); got == "" {
		t.Error("its container cannot be executed in")
	}
	other := n.run("other")
	n.launch(other, shell("c", sleeper))
	n.removeSandbox(sb)
	n.removeSandbox(other)
	if got, want := n.beside(), []string{"run/containers"}; !slices.Equal(got, want) {
		t.Errorf("of the pods are left %v, want %v", got, want)
	}
	n.restart()
	n.launch(n.run("after"), shell("c", sleeper))
	if got, want := n.beside(), []string{"run/containers", "run/sandboxes"}; !slices.Equal(got, want) {
		t.Errorf("the mounts are now %v, want %v", got, want)
	}
}
