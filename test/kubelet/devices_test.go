//go:build kubelet

package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/plugins/plugin"
)

// pluginDir is where plugins register with a kubelet; it cannot be configured.
const pluginDir = "/var/lib/kubelet/device-plugins"

// startForPlugins starts a kubelet that logs what becomes of devices, and returns when it takes registrations: when it starts it removes all sockets of
// the folder.
func startForPlugins(t testing.TB) *node {
	t.Helper()
	n := start(t, map[string]any{"logging": map[string]any{"verbosity": 2}})
	harness.Eventually(n, "plugins can register", func() (bool, string) {
		conn, err := net.Dial("unix", filepath.Join(pluginDir, "kubelet.sock"))
		if err != nil {
			return false, err.Error()
		}
		conn.Close()
		return true, ""
	})
	return n
}

// place is what plugins have of a node.
func (n *node) place() plugin.Place {
	return plugin.Place{Plugins: pluginDir, CDI: filepath.Join(n.rt.Dir, "cdi"), Dir: n.rt.Dir}
}

// podResources calls the kubelet's PodResources API: without an API server its node has no status.
func podResources[R any](n *node, call func(podresources.PodResourcesListerClient, context.Context) (R, error)) (R, error) {
	conn, err := grpc.NewClient("unix://"+n.dir+"/root/pod-resources/kubelet.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return call(podresources.NewPodResourcesListerClient(conn), ctx)
}

// allocatable are the healthy devices of a resource that the PodResources API tells, granted or not.
func (n *node) allocatable(resource string) (ids []string) {
	n.Helper()
	all, err := podResources(n, func(c podresources.PodResourcesListerClient, ctx context.Context) (*podresources.AllocatableResourcesResponse, error) {
		return c.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	})
	if err != nil {
		n.Fatal(err)
	}
	for _, d := range all.Devices {
		if d.ResourceName == resource {
			ids = append(ids, d.DeviceIds...)
		}
	}
	slices.Sort(ids)
	return ids
}

var healthyCount = regexp.MustCompile(`healthyCount=(\d+)`)

// awaitDevices waits until so many devices of a resource are healthy, granted or not. The kubelet that runs says so in its log, where else its node's status
// would: it has no API server, and what PodResources tells lacks devices (TestEmptyTopology).
func (n *node) awaitDevices(resource string, want int) {
	n.Helper()
	harness.Eventually(n, fmt.Sprintf("%s has %d healthy devices", resource, want), func() (bool, string) {
		log, err := os.ReadFile(n.dir + "/log")
		if err != nil {
			return false, err.Error()
		}
		have := "0"
		for line := range strings.Lines(string(log[n.logged:])) {
			if !strings.Contains(line, fmt.Sprintf("=%q", resource)) {
				continue
			}
			if m := healthyCount.FindStringSubmatch(line); m != nil {
				have = m[1]
			} else if strings.Contains(line, "Mark all resources Unhealthy") {
				have = "0"
			}
		}
		return have == fmt.Sprint(want), have
	})
}

// holdings are the devices of a resource that each pod has, by the name of its manifest, sorted.
func (n *node) holdings(resource string) map[string][]string {
	n.Helper()
	list, err := podResources(n, func(c podresources.PodResourcesListerClient, ctx context.Context) (*podresources.ListPodResourcesResponse, error) {
		return c.List(ctx, &podresources.ListPodResourcesRequest{})
	})
	if err != nil {
		n.Fatal(err)
	}
	have := map[string][]string{}
	for _, p := range list.PodResources {
		name := strings.TrimSuffix(p.Name, "-"+nodeName)
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				if d.ResourceName == resource {
					have[name] = append(have[name], d.DeviceIds...)
				}
			}
		}
		slices.Sort(have[name])
	}
	return have
}

// apply makes a pod that asks for devices and uses them by a shell command.
func (n *node) apply(name, resource string, count int, use string) {
	n.Helper()
	script, err := json.Marshal(use + " && echo used; trap 'exit 0' TERM; sleep 3600 & wait")
	if err != nil {
		n.Fatal(err)
	}
	n.write(name, fmt.Sprintf("  terminationGracePeriodSeconds: 1\n  containers: [{name: c, image: BUSYBOX, command: [sh, -c, %s], resources: {limits: {%q: %d}}}]\n", script, resource, count))
}

// awaitUsed waits until a pod has used its devices, and returns which container it is; it is another one after a restart.
func (n *node) awaitUsed(name string) (container string) {
	n.Helper()
	container = n.runs(name)
	harness.Eventually(n, name+" uses its devices", func() (bool, string) {
		said, err := n.api.logs(name, "c")
		return strings.HasSuffix(said, "used\n"), fmt.Sprint(said, err)
	})
	return container
}

// runs waits until a pod runs, and returns which container it is.
func (n *node) runs(name string) string {
	n.Helper()
	return container(n.await(name, "runs", func(p *corev1.Pod) bool { return container(p, "c").State.Running != nil }), "c").ContainerID
}

// awaitRejected waits until the kubelet has rejected a pod, in these words.
func (n *node) awaitRejected(name, words string) {
	n.Helper()
	n.await(name, "is rejected: "+words, func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "UnexpectedAdmissionError" && strings.Contains(p.Status.Message, words)
	})
}

// decided waits until a pod runs or has been rejected, and returns its phase.
func (n *node) decided(name string) corev1.PodPhase {
	n.Helper()
	return n.await(name, "runs or is rejected", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodFailed
	}).Status.Phase
}

// clear removes pods and waits for their end.
func (n *node) clear(names ...string) {
	n.Helper()
	n.remove(names...)
	for _, name := range names {
		n.gone(name)
	}
}

// forgetPlugins removes what a kubelet, and plugins that were killed, leave where the next one looks.
func forgetPlugins(t testing.TB) {
	t.Helper()
	if err := os.RemoveAll(pluginDir); err != nil {
		t.Error(err)
	}
}
