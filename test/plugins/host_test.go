//go:build plugins

package plugins

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/devices/report"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
	"monopod.dev/monopod/test/plugins/plugin"
)

const busybox = "registry.test/test/busybox:1"

// startNode starts a node with an image of busybox, and with a folder for CDI specs that plugins can write to.
func startNode(t *testing.T) *harness.Node {
	t.Helper()
	n := harness.NewNode(t, harness.Options{})
	if err := os.Mkdir(place(n).CDI, 0o755); err != nil {
		t.Fatal(err)
	}
	n.Start()
	n.LoadImage(harness.Archive(t, busybox, images.Busybox))
	return n
}

// place is what plugins have of a node.
func place(n *harness.Node) plugin.Place {
	return plugin.Place{Plugins: n.PluginDir(), CDI: filepath.Join(n.Dir, "cdi"), Dir: n.Dir}
}

// awaitResource waits for what the node says of a resource, and that it is a plugin's.
func awaitResource(t *testing.T, n *harness.Node, resource string, capacity, allocatable int) {
	t.Helper()
	awaitCounted(t, n, resource, capacity, allocatable)
	harness.Eventually(t, resource+" is a plugin's", func() (bool, string) {
		for _, d := range devices(t, n) {
			if d.Resource == resource && filepath.Dir(d.Source) != n.PluginDir() && len(d.Holders) == 0 {
				return false, fmt.Sprintf("%+v", d)
			}
		}
		return true, ""
	})
}

// awaitCounted waits for what the node says of a resource, whoever's it is.
func awaitCounted(t *testing.T, n *harness.Node, resource string, capacity, allocatable int) {
	t.Helper()
	want := fmt.Sprintf("%d %d", capacity, allocatable)
	harness.Eventually(t, resource+": capacity and allocatable are "+want, func() (bool, string) {
		name := strings.ReplaceAll(resource, ".", `\.`)
		got := n.Kubectl("get", "node", n.Name, "-o", fmt.Sprintf("jsonpath={.status.capacity.%s} {.status.allocatable.%s}", name, name))
		return got == want, got
	})
}

// apply makes a pod that asks for devices and uses them by a shell command.
func apply(n *harness.Node, name, resource string, count int, use string) {
	script, _ := json.Marshal(use + " && echo used; trap 'exit 0' TERM; sleep 3600 & wait")
	n.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {"nodeName": %q, "terminationGracePeriodSeconds": 0, "containers": [{
		"name": "c", "image": %q, "imagePullPolicy": "Never", "resources": {"limits": {%q: %d}}, "command": ["sh", "-c", %s]}]}}`, name, n.Name, busybox, resource, count, script))
}

// awaitUsed waits until a pod has used its devices, and returns all that it said.
func awaitUsed(t *testing.T, n *harness.Node, name string) (said string) {
	t.Helper()
	harness.Eventually(t, "pod "+name+" uses its devices", func() (bool, string) {
		p := getPod(t, n, name)
		if p.Status.Phase != corev1.PodRunning {
			return false, fmt.Sprintf("%+v", p.Status)
		}
		said = n.Kubectl("logs", name)
		return strings.HasSuffix(said, "used\n"), said
	})
	return said
}

// awaitHeld waits until a pod waits for devices, in these words.
func awaitHeld(t *testing.T, n *harness.Node, name, words string) {
	t.Helper()
	harness.Eventually(t, "pod "+name+" is held: "+words, func() (bool, string) {
		s := getPod(t, n, name).Status
		return s.Phase == corev1.PodPending && s.Reason == "DevicesNotReady" && strings.Contains(s.Message, words), s.Reason + ": " + s.Message
	})
}

func getPod(t *testing.T, n *harness.Node, name string) (p corev1.Pod) {
	t.Helper()
	if err := json.Unmarshal([]byte(n.Kubectl("get", "pod", name, "-o", "json")), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// container is which container a pod's only one is; it is another one after a restart.
func container(t *testing.T, n *harness.Node, pod string) string {
	t.Helper()
	s := getPod(t, n, pod).Status.ContainerStatuses
	if len(s) != 1 || s[0].State.Running == nil {
		t.Fatalf("pod %s does not run: %+v", pod, s)
	}
	return s[0].ContainerID
}

// devices are all devices, as `monopod device ls` tells them.
func devices(t *testing.T, n *harness.Node) []report.Device {
	t.Helper()
	var list struct{ Devices []report.Device }
	out := n.Monopod("device", "ls", "--admin-socket", filepath.Join(n.Dir, "run", "admin.sock"), "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return list.Devices
}

// holdings are the names of the devices of a resource that each pod has, sorted.
func holdings(t *testing.T, n *harness.Node, resource string) map[string][]string {
	t.Helper()
	have := map[string][]string{}
	for _, d := range devices(t, n) {
		for _, h := range d.Holders {
			if d.Resource == resource {
				have[h.Pod] = append(have[h.Pod], d.Name)
			}
		}
	}
	for _, names := range have {
		slices.Sort(names)
	}
	return have
}
