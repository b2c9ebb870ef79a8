package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/test/harness"
)

// deviceSpec has the devices w0, w1 ...: each is in a container as /dev/widget and tells its name.
func deviceSpec(n int) string {
	var devices []string
	for i := range n {
		devices = append(devices, fmt.Sprintf(`{"name": "w%d", "containerEdits": {"env": ["WIDGET=w%d"], "deviceNodes": [{"path": "/dev/widget", "hostPath": "/dev/null"}]}}`, i, i))
	}
	return `{"cdiVersion": "0.5.0", "kind": "example.com/widget", "devices": [` + strings.Join(devices, ",") + `]}`
}

// devicePod has a container for each of counts, which asks for so many widgets. It names its node, so that the binder does not keep it from
// the agent.
func devicePod(node, name string, counts ...int) string {
	var containers []string
	for i, n := range counts {
		containers = append(containers, fmt.Sprintf(`{"name": "c%d", "image": %q, "imagePullPolicy": "Never", "command": ["sh", "-c", "echo has $WIDGET; exec sleep 3600"],
			"resources": {"limits": {"example.com/widget": %d}}}`, i, busybox, n))
	}
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {"nodeName": %q, "terminationGracePeriodSeconds": 0, "containers": [%s]}}`,
		name, node, strings.Join(containers, ","))
}

// awaitHeld waits until a pod is held for its devices, and returns the words for it.
func awaitHeld(t *testing.T, n *harness.Node, name, words string) {
	t.Helper()
	harness.Eventually(t, "pod "+name+" is held: "+words, func() (bool, string) {
		var p corev1.Pod
		getPod(t, n, name, &p)
		return p.Status.Phase == corev1.PodPending && p.Status.Reason == "DevicesNotReady" && strings.Contains(p.Status.Message, words), p.Status.Reason + ": " + p.Status.Message
	})
}

// TestDevicesAreGrantedWholeAndInOrder: a pod gets the devices of all its containers or none, and who came first goes first.
func TestDevicesAreGrantedWholeAndInOrder(t *testing.T) {
	n := harness.StartNode(t, harness.Options{CDISpecs: map[string]string{"widget.json": deviceSpec(2)}})
	n.LoadImage(archive(t))
	n.Apply(devicePod(n.Name, "first", 1))
	n.Kubectl("wait", "--for=condition=Ready", "pod/first", "--timeout=60s")
	n.Apply(devicePod(n.Name, "second", 1, 1))
	awaitHeld(t, n, "second", "1 wanted, 0 free (of 2, 2 in use)")
	n.Apply(devicePod(n.Name, "third", 1)) // there is one
	awaitHeld(t, n, "third", "pod default/second, which came first, waits for it")
	n.Kubectl("delete", "pod", "first", "--timeout=60s")
	n.Kubectl("wait", "--for=condition=Ready", "pod/second", "--timeout=60s")
	logs := n.Kubectl("logs", "second", "-c", "c0") + n.Kubectl("logs", "second", "-c", "c1")
	if logs != "has w0\nhas w1\n" {
		t.Errorf("its containers say %q", logs)
	}
	awaitHeld(t, n, "third", "1 wanted, 0 free (of 2, 2 in use)")
	n.Kubectl("delete", "pod", "second", "--timeout=60s")
	n.Kubectl("wait", "--for=condition=Ready", "pod/third", "--timeout=60s")
}

// TestALostLedgerGivesNoDeviceAway: what runs keeps its device when the state of the devices is damaged, and nobody else gets it.
func TestALostLedgerGivesNoDeviceAway(t *testing.T) {
	n := harness.StartNode(t, harness.Options{CDISpecs: map[string]string{"widget.json": deviceSpec(2)}})
	n.LoadImage(archive(t))
	n.Apply(devicePod(n.Name, "a", 1))
	n.Apply(devicePod(n.Name, "b", 1))
	n.Kubectl("wait", "--for=condition=Ready", "pod/a", "pod/b", "--timeout=60s")
	var before, after corev1.Pod
	getPod(t, n, "b", &before)
	logs := n.Kubectl("logs", "b")
	n.Kill()
	if err := os.WriteFile(filepath.Join(n.Dir, "data", "state", "agent.db"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Start()
	n.Apply(devicePod(n.Name, "c", 1))
	awaitHeld(t, n, "c", "1 wanted, 0 free (of 2, 2 in use)")
	getPod(t, n, "b", &after)
	if before.Status.ContainerStatuses[0].ContainerID != after.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("pod b was touched: %+v", after.Status.ContainerStatuses)
	}
	n.Kubectl("delete", "pod", "a", "--timeout=60s")
	n.Kubectl("wait", "--for=condition=Ready", "pod/c", "--timeout=60s")
	if c := n.Kubectl("logs", "c"); c == logs {
		t.Errorf("pod c has the device of pod b: %q", c)
	}
}

// TestADeviceIsShared: as many containers have a device of the host as it is shared by, and whoever comes later waits for one of them.
func TestADeviceIsShared(t *testing.T) {
	n := harness.StartNode(t, harness.Options{})
	n.LoadImage(archive(t))
	thing := filepath.Join(n.Dir, "thing")
	if err := unix.Mknod(thing, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))); err != nil {
		t.Fatal(err)
	}
	out := n.Monopod("device", "add", thing, "--class", "thing", "--container-path", "/dev/thing", "--spec-dir", filepath.Join(n.Dir, "cdi"), "--share", "2")
	if !strings.Contains(out, "up to 2 containers have it at a time, each as if it were alone") {
		t.Errorf("it does not say that nothing is kept apart:\n%s", out)
	}
	pod := func(name string) string {
		return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {"nodeName": %q, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": %q,
			"imagePullPolicy": "Never", "command": ["sh", "-c", "head -c 3 /dev/thing | tr '\\0' z; echo; exec sleep 3600"], "resources": {"limits": {"device.monopod.dev/thing": 1}}}]}}`,
			name, n.Name, busybox)
	}
	n.Apply(pod("a"))
	n.Apply(pod("b"))
	n.Kubectl("wait", "--for=condition=Ready", "pod/a", "pod/b", "--timeout=60s")
	awaitLog(t, n, "a", "zzz")
	awaitLog(t, n, "b", "zzz")
	n.Kill()
	n.Start()
	n.Apply(pod("c"))
	awaitHeld(t, n, "c", "1 wanted, 0 free (of 2, 2 in use)")
	ls := n.Monopod("device", "--admin-socket", filepath.Join(n.Dir, "run", "admin.sock"), "ls", "device.monopod.dev/thing")
	for _, holder := range []string{"default/a/c", "default/b/c", "thing#2"} {
		if strings.Count(ls, holder) != 1 {
			t.Errorf("'device ls' does not have %s once:\n%s", holder, ls)
		}
	}
	n.Kubectl("delete", "pod", "a", "--timeout=60s")
	n.Kubectl("wait", "--for=condition=Ready", "pod/c", "--timeout=60s")
}
