package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/internal/devices/report"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

const numaNodes = "/sys/devices/system/node"

// twoNUMANodes lays out what sysfs says on a host of two NUMA nodes.
func twoNUMANodes(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for path, text := range map[string]string{"online": "0-1", "node0/distance": "10 21", "node1/distance": "21 10"} {
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// numaPod has a container for each of counts, c0 and so on, which asks for so many emulated devices.
func numaPod(node, name string, counts ...int) string {
	var containers []string
	for i, n := range counts {
		containers = append(containers, fmt.Sprintf(`{"name": "c%d", "image": %q, "imagePullPolicy": "Never", "resources": {"limits": {%q: %d}},
			"command": ["sh", "-c", "echo $EMULATED_DEVICES; trap 'exit 0' TERM; sleep 3600 & wait"]}`, i, busybox, emulated, n))
	}
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {"nodeName": %q, "terminationGracePeriodSeconds": 0, "containers": [%s]}}`,
		name, node, strings.Join(containers, ","))
}

// TestDevicesOfOneNUMANode: with the policy single-numa-node a pod has devices of one NUMA node, and keeps them; one that cannot get such fails
// and leaves nothing. Only the agent is shown two NUMA nodes, by files in the place of sysfs's: nobody else asks for them.
func TestDevicesOfOneNUMANode(t *testing.T) {
	if _, err := os.Stat(numaNodes); err != nil {
		t.Skipf("the kernel knows no NUMA nodes: %v", err)
	}
	api := harness.StartNode(t, harness.Options{Command: "apiserver"})
	rt := harness.StartNode(t, harness.Options{Command: "runtime"})
	rt.LoadImage(harness.Archive(t, busybox, images.Busybox))
	pki := filepath.Join(api.Dir, "data", "pki")
	agent := harness.NewNode(t, harness.Options{Command: "node", Sees: map[string]string{numaNodes: twoNUMANodes(t)}, Args: []string{
		"--kubeconfig", nodeKubeconfig(t, api, pki), "--cri-socket", rt.CRISocket(), "--cgroup-root", rt.CgroupRoot,
		"--serving-cert", filepath.Join(pki, "agent.crt"), "--serving-key", filepath.Join(pki, "agent.key"),
		"--client-ca", filepath.Join(pki, "ca.crt"), "--node-name", api.Name, "--topology-manager-policy", "single-numa-node",
	}})
	agent.Start()
	// 0, 2 and 4 are of node 0, the others of node 1.
	runPlugin(t, emulator.Config{Dir: agent.PluginDir(), Resource: emulated, Devices: emulator.Devices(6, 2)})
	awaitResource(t, api, 6, 6)

	// In the order of their names it would be dev-0 and dev-1.
	api.Apply(numaPod(api.Name, "fits", 2))
	api.Kubectl("wait", "--for=condition=Ready", "pod/fits", "--timeout=60s")
	awaitLog(t, api, "fits", "dev-0,dev-2")

	// There are four left, three of them of node 1: the first container's could be had, the second's not.
	api.Apply(numaPod(api.Name, "torn", 2, 2))
	awaitUnaligned(t, api, "torn", "2 "+emulated)
	wantHolders(t, agent, "after a refusal", "dev-0=default/fits/c0 dev-1= dev-2=default/fits/c0 dev-3= dev-4= dev-5=")

	// Both the agent and the runtime die. The agent comes back with the other scope, which concerns only who comes then.
	var before, after corev1.Pod
	getPod(t, api, "fits", &before)
	agent.Kill()
	rt.Kill()
	rt.Start()
	agent.Start("--topology-manager-scope", "pod")
	awaitResource(t, api, 6, 6)
	getPod(t, api, "fits", &after)
	if before.Status.ContainerStatuses[0].ContainerID != after.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the pod was touched: %+v", after.Status.ContainerStatuses)
	}
	endContainer(api, "fits")
	awaitRestarts(t, api, "fits", 1)
	awaitLog(t, api, "fits", "dev-0,dev-2")

	// Each container could have devices of one node, and not all of them of the same one.
	api.Apply(numaPod(api.Name, "apart", 3, 1))
	awaitUnaligned(t, api, "apart", "4 "+emulated)
	api.Apply(numaPod(api.Name, "together", 2, 1))
	api.Kubectl("wait", "--for=condition=Ready", "pod/together", "--timeout=60s")
	wantHolders(t, agent, "in the end", "dev-0=default/fits/c0 dev-1=default/together/c0 dev-2=default/fits/c0 dev-3=default/together/c0 dev-4= dev-5=default/together/c1")
	api.Kubectl("delete", "pod", "--all", "--timeout=60s")
	wantHolders(t, agent, "without pods", "dev-0= dev-1= dev-2= dev-3= dev-4= dev-5=")
}

// awaitUnaligned waits until a pod has failed for its devices' NUMA nodes, with a message that has the words.
func awaitUnaligned(t *testing.T, n *harness.Node, name, words string) {
	t.Helper()
	harness.Eventually(t, "pod "+name+" fails for its alignment", func() (bool, string) {
		var p corev1.Pod
		getPod(t, n, name, &p)
		return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "TopologyAffinityError" && strings.Contains(p.Status.Message, words),
			string(p.Status.Phase) + " " + p.Status.Reason + ": " + p.Status.Message
	})
}

// wantHolders waits until the emulated devices are held as said, "DEVICE=HOLDER ...", and are of the nodes that their plugin says.
func wantHolders(t *testing.T, agent *harness.Node, when, want string) {
	t.Helper()
	harness.Eventually(t, when+" the holders are "+want, func() (bool, string) {
		var l report.List
		out := agent.Monopod("device", "ls", "--admin-socket", filepath.Join(agent.Dir, "run", "admin.sock"), "-o", "json", emulated)
		if err := json.Unmarshal([]byte(out), &l); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var all []string
		for i, d := range l.Devices {
			if len(d.NUMA) != 1 || d.NUMA[0] != i%2 {
				t.Fatalf("device %s is of the NUMA nodes %v", d.Name, d.NUMA)
			}
			var holders []string
			for _, h := range d.Holders {
				holders = append(holders, h.String())
			}
			all = append(all, d.Name+"="+strings.Join(holders, ","))
		}
		got := strings.Join(all, " ")
		return got == want, got
	})
}
