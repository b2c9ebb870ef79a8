package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// archive writes the busybox image as an archive that `monopod image load` reads.
func archive(t *testing.T) string {
	t.Helper()
	return harness.Archive(t, busybox, images.Busybox)
}

// TestRestartFindsPods: SIGTERM stops the daemon and leaves pods running; a new `monopod up` finds them.
func TestRestartFindsPods(t *testing.T) {
	n := harness.StartNode(t, harness.Options{})
	n.LoadImage(archive(t))
	n.Apply(pod("stays", "echo up; exec sleep 3600", `"terminationGracePeriodSeconds": 0,`))
	n.Kubectl("wait", "--for=condition=Ready", "pod/stays", "--timeout=60s")
	var before, after corev1.Pod
	getPod(t, n, "stays", &before)
	n.Stop()
	n.Start()
	n.Kubectl("wait", "--for=condition=Ready", "pod/stays", "--timeout=60s")
	getPod(t, n, "stays", &after)
	if b, a := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; a.ContainerID != b.ContainerID || a.RestartCount != 0 {
		t.Errorf("container %s with %d restarts, want %s with none", a.ContainerID, a.RestartCount, b.ContainerID)
	}
	if after.Status.PodIP != before.Status.PodIP || after.Status.PodIP == "" {
		t.Errorf("pod IP %q, want %q", after.Status.PodIP, before.Status.PodIP)
	}
	if out := n.Kubectl("exec", "stays", "--", "echo", "alive"); out != "alive\n" {
		t.Errorf("exec printed %q", out)
	}
}

// TestEphemeral: Ctrl-C of an ephemeral node stops the pods and leaves nothing behind.
func TestEphemeral(t *testing.T) {
	n := harness.NewNode(t, harness.Options{Args: []string{"--ephemeral"}})
	n.Start()
	n.LoadImage(archive(t))
	n.Apply(pod("goes", "exec sleep 3600", ""))
	n.Kubectl("wait", "--for=condition=Ready", "pod/goes", "--timeout=60s")
	n.Interrupt(syscall.SIGINT)
	for _, left := range harness.Leftovers(t, harness.Place{Dirs: []string{n.Dir}, CgroupRoot: n.CgroupRoot, Bridge: n.Bridge}) {
		t.Errorf("left behind: %s", left)
	}
	entries, err := os.ReadDir(n.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != ".kube" { // kubectl's cache
			t.Errorf("file left behind: %s", e)
		}
	}
}

// TestEphemeralRefusesFullDirectories: what somebody has in the directories is not removed.
func TestEphemeralRefusesFullDirectories(t *testing.T) {
	n := harness.NewNode(t, harness.Options{Args: []string{"--ephemeral"}})
	keep := filepath.Join(n.Dir, "data", "precious")
	if err := os.MkdirAll(keep, 0o755); err != nil {
		t.Fatal(err)
	}
	expectRefusal(t, n.Command(), 1, []string{"--ephemeral", "not empty"})
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
}

// TestSecondMonopod: two daemons do not share a run directory.
func TestSecondMonopod(t *testing.T) {
	n := harness.StartNode(t, harness.Options{})
	expectRefusal(t, n.Command(), 1, []string{"a node runs already", "--run-dir"})
	if out := n.Kubectl("get", "nodes"); !strings.Contains(out, n.Name) {
		t.Errorf("the first one's node: %s", out)
	}
}
