package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/test/harness"
)

const emulated = "example.com/emulated"

// emulatedNodes makes a device node for each of n devices, and returns what leads to them.
func emulatedNodes(t *testing.T, n *harness.Node, count int) (pattern string) {
	t.Helper()
	dir := filepath.Join(n.Dir, "nodes")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		if err := unix.Mknod(filepath.Join(dir, fmt.Sprintf("dev-%d", i)), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
			t.Fatal(err)
		}
	}
	return dir + "/%s"
}

// runPlugin runs a plugin until stop is called, or the test ends.
func runPlugin(t *testing.T, cfg emulator.Config) (p *emulator.Plugin, stop func()) {
	t.Helper()
	p = emulator.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return p, stop
}

// awaitResource waits for what the node says of a resource.
func awaitResource(t *testing.T, n *harness.Node, capacity, allocatable int) {
	t.Helper()
	want := fmt.Sprintf("%d %d", capacity, allocatable)
	harness.Eventually(t, "capacity and allocatable are "+want, func() (bool, string) {
		name := strings.ReplaceAll(emulated, ".", `\.`)
		got := n.Kubectl("get", "node", n.Name, "-o", fmt.Sprintf("jsonpath={.status.capacity.%s} {.status.allocatable.%s}", name, name))
		return got == want, got
	})
}

// pluginPod asks for emulated devices, and tells what it has.
func pluginPod(node, name string, count int) string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {"nodeName": %q, "terminationGracePeriodSeconds": 0, "containers": [{
		"name": "c", "image": %q, "imagePullPolicy": "Never", "resources": {"limits": {%q: %d}},
		"command": ["sh", "-c", "echo has $EMULATED_DEVICES, sees $(cd /dev; echo emulated-*); trap 'exit 0' TERM; sleep 3600 & wait"]}]}}`, name, node, busybox, emulated, count)
}

// TestDevicePlugin takes a plugin and pods through all that happens to them on a node.
func TestDevicePlugin(t *testing.T) {
	n := harness.StartNode(t, harness.Options{})
	n.LoadImage(archive(t))
	cfg := emulator.Config{Dir: n.PluginDir(), Resource: emulated, Devices: emulator.Devices(3, 0), NodePath: emulatedNodes(t, n, 3), Preferred: true, PreStart: true}
	p, stop := runPlugin(t, cfg)
	awaitResource(t, n, 3, 3)
	n.Apply(pluginPod(n.Name, "a", 2))
	n.Kubectl("wait", "--for=condition=Ready", "pod/a", "--timeout=60s")
	const has = "has dev-2,dev-1, sees emulated-dev-1 emulated-dev-2" // the plugin prefers the last ones
	awaitLog(t, n, "a", has)
	if a, s := p.Allocations.Load(), p.PreStarts.Load(); a != 1 || s != 1 {
		t.Errorf("%d calls of Allocate, %d of PreStartContainer", a, s)
	}

	// Health is followed, and wakes who waits.
	p.SetHealth("dev-0", v1beta1.Unhealthy)
	awaitResource(t, n, 3, 2)
	n.Apply(pluginPod(n.Name, "b", 1))
	awaitHeld(t, n, "b", "1 wanted, 0 free (of 3, 2 in use, 1 unfit)")
	p.SetHealth("dev-0", v1beta1.Healthy)
	n.Kubectl("wait", "--for=condition=Ready", "pod/b", "--timeout=60s")
	awaitLog(t, n, "b", "has dev-0, sees emulated-dev-0")

	// The node dies: what runs keeps running with what it has, and nothing is given twice. That the plugin has not registered again yet is no reason
	// for b to fail, which wants to when its device is not healthy any more.
	var before, after corev1.Pod
	n.Kubectl("annotate", "pod", "b", "monopod.dev/unhealthy-devices=fail")
	getPod(t, n, "a", &before)
	n.Kill()
	n.Start()
	awaitResource(t, n, 3, 3)
	n.Apply(pluginPod(n.Name, "c", 2))
	awaitHeld(t, n, "c", "2 wanted, 0 free (of 3, 3 in use)")
	getPod(t, n, "a", &after)
	if before.Status.ContainerStatuses[0].ContainerID != after.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("pod a was touched: %+v", after.Status.ContainerStatuses)
	}
	if getPod(t, n, "b", &after); after.Status.Phase != corev1.PodRunning {
		t.Errorf("pod b: %+v", after.Status)
	}
	if said := n.Kubectl("get", "events", "-o", "jsonpath={.items[*].reason}"); strings.Contains(said, "DeviceUnknown") {
		t.Errorf("events: %s", said)
	}
	n.Kubectl("annotate", "pod", "b", "monopod.dev/unhealthy-devices-")
	// A restart has the same devices, without being allocated again.
	allocated := p.Allocations.Load()
	endContainer(n, "a")
	awaitRestarts(t, n, "a", 1)
	awaitLog(t, n, "a", has)
	if a := p.Allocations.Load(); a != allocated {
		t.Errorf("Allocate was called %d times for a restart", a-allocated)
	}

	// The plugin goes: nothing is allocatable, what runs runs, and what is to start waits for it since it wants to be told.
	stop()
	awaitResource(t, n, 3, 0)
	endContainer(n, "a")
	harness.Eventually(t, "the container waits for its plugin", func() (bool, string) {
		getPod(t, n, "a", &after)
		w := after.Status.ContainerStatuses[0].State.Waiting
		return w != nil && w.Reason == "DevicesNotReady", fmt.Sprintf("%+v", after.Status.ContainerStatuses[0].State)
	})
	_, _ = runPlugin(t, cfg)
	awaitResource(t, n, 3, 3)
	awaitRestarts(t, n, "a", 2)
	awaitLog(t, n, "a", has)

	n.Kubectl("delete", "pod", "a", "--timeout=60s")
	n.Kubectl("wait", "--for=condition=Ready", "pod/c", "--timeout=60s")
	awaitLog(t, n, "c", "has dev-1,dev-2, sees emulated-dev-1 emulated-dev-2") // there was no choice
}

// endContainer has a pod's container end by itself. The command in it may end with it, before it can say how.
func endContainer(n *harness.Node, pod string) {
	_, _ = n.TryKubectl("", "exec", pod, "--", "kill", "1")
}

// awaitRestarts waits until a pod's container runs for another time.
func awaitRestarts(t *testing.T, n *harness.Node, name string, count int32) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("pod %s has restarted %d times", name, count), func() (bool, string) {
		var p corev1.Pod
		getPod(t, n, name, &p)
		s := p.Status.ContainerStatuses[0]
		return s.RestartCount >= count && s.State.Running != nil, fmt.Sprintf("%d, %+v", s.RestartCount, s.State)
	})
}

// TestDevicePluginRefuses: what a plugin refuses is told in its words. Allocate's refusal fails the pod and frees all of it, that of
// PreStartContainer keeps the container waiting.
func TestDevicePluginRefuses(t *testing.T) {
	n := harness.StartNode(t, harness.Options{})
	n.LoadImage(archive(t))
	var allocate, preStart atomic.Pointer[string]
	words := func(w string) *string { return &w }
	cfg := emulator.Config{Dir: n.PluginDir(), Resource: emulated, Devices: emulator.Devices(1, 0), PreStart: true}
	cfg.Hooks.Allocate = func(_ context.Context, ids []string) (*v1beta1.AllocateResponse, error) {
		if w := allocate.Load(); w != nil {
			return nil, errors.New(*w)
		}
		return &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{{Envs: map[string]string{"EMULATED_DEVICES": ids[0]}}}}, nil
	}
	cfg.Hooks.PreStart = func(context.Context, []string) error {
		if w := preStart.Load(); w != nil {
			return errors.New(*w)
		}
		return nil
	}
	runPlugin(t, cfg)
	awaitResource(t, n, 1, 1)

	allocate.Store(words("the firmware is too old"))
	n.Apply(pluginPod(n.Name, "refused", 1))
	harness.Eventually(t, "the pod fails in the plugin's words", func() (bool, string) {
		var p corev1.Pod
		getPod(t, n, "refused", &p)
		return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "UnexpectedAdmissionError" && strings.Contains(p.Status.Message, "the firmware is too old"),
			string(p.Status.Phase) + " " + p.Status.Reason + ": " + p.Status.Message
	})
	allocate.Store(nil)

	preStart.Store(words("the reset has failed"))
	n.Apply(pluginPod(n.Name, "waits", 1))
	harness.Eventually(t, "the container waits in the plugin's words", func() (bool, string) {
		var p corev1.Pod
		getPod(t, n, "waits", &p)
		if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Waiting == nil {
			return false, fmt.Sprintf("%+v", p.Status)
		}
		w := p.Status.ContainerStatuses[0].State.Waiting
		return w.Reason == "CreateContainerConfigError" && strings.Contains(w.Message, "the reset has failed"), w.Reason + ": " + w.Message
	})
	preStart.Store(nil)
	n.Kubectl("wait", "--for=condition=Ready", "pod/waits", "--timeout=60s")
	awaitLog(t, n, "waits", "has dev-0, sees emulated-*")
}

// TestDeviceHealthIsTold: pod status, events and exporters tell of the devices that a pod has.
func TestDeviceHealthIsTold(t *testing.T) {
	n := harness.StartNode(t, harness.Options{})
	n.LoadImage(archive(t))
	p, _ := runPlugin(t, emulator.Config{Dir: n.PluginDir(), Resource: emulated, Devices: emulator.Devices(2, 1)})
	awaitResource(t, n, 2, 2)
	n.Apply(pluginPod(n.Name, "a", 1))
	n.Kubectl("wait", "--for=condition=Ready", "pod/a", "--timeout=60s")
	health := func(want string) {
		t.Helper()
		harness.Eventually(t, "the pod's status tells "+want, func() (bool, string) {
			var pod corev1.Pod
			getPod(t, n, "a", &pod)
			got := fmt.Sprint(pod.Status.ContainerStatuses[0].AllocatedResourcesStatus)
			if all := pod.Status.ContainerStatuses[0].AllocatedResourcesStatus; len(all) == 1 && len(all[0].Resources) == 1 {
				got = fmt.Sprintf("%s %s %s", all[0].Name, all[0].Resources[0].ResourceID, all[0].Resources[0].Health)
			}
			return got == want, got
		})
	}
	event := func(want string) { // it comes when the change has lasted: what passes at once is in none
		t.Helper()
		harness.Eventually(t, "an event tells "+want, func() (bool, string) {
			reasons := n.Kubectl("get", "events", "--field-selector", "involvedObject.name=a", "-o", "jsonpath={.items[*].reason}")
			return slices.Contains(strings.Fields(reasons), want), reasons
		})
	}
	health(emulated + " dev-0 Healthy")
	p.SetHealth("dev-0", v1beta1.Unhealthy)
	health(emulated + " dev-0 Unhealthy")
	event("DeviceUnhealthy")
	p.SetHealth("dev-0", v1beta1.Healthy)
	health(emulated + " dev-0 Healthy")
	event("DeviceHealthy")

	socket := filepath.Join(n.Dir, "run", "admin.sock")
	table := strings.Fields(n.Monopod("device", "ls", "--admin-socket", socket, emulated))
	if want := strings.Fields(`RESOURCE DEVICE HEALTH NUMA SOURCE HOLDER ` + emulated + ` dev-0 Healthy 0 emulator.sock default/a/c ` + emulated + ` dev-1 Healthy 0 emulator.sock free`); !slices.Equal(table, want) {
		t.Errorf("monopod device ls: %q, want %q", table, want)
	}
	if status := n.Monopod("status", "--admin-socket", socket); !strings.Contains(status, emulated+": 2 in total, 2 healthy, 1 granted") || !strings.Contains(status, "1 running") {
		t.Errorf("monopod status:\n%s", status)
	}

	conn, err := grpc.NewClient("unix://"+n.PodResourcesSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	list, err := podresources.NewPodResourcesListerClient(conn).List(t.Context(), &podresources.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.PodResources) != 1 || len(list.PodResources[0].Containers) != 1 || len(list.PodResources[0].Containers[0].Devices) != 1 {
		t.Fatalf("exporters are told %v", list)
	}
	d := list.PodResources[0].Containers[0].Devices[0]
	if list.PodResources[0].Name != "a" || d.ResourceName != emulated || len(d.DeviceIds) != 1 || d.DeviceIds[0] != "dev-0" || len(d.GetTopology().GetNodes()) != 1 {
		t.Errorf("exporters are told %v", list)
	}
}
