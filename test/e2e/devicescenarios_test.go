package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/test/harness"
)

// The scenarios of Kubernetes' node tests in which everything plays a part; docs/reference/UPSTREAM-SCENARIOS.md says which test is whose.

// stage is a node with a plugin of CDI devices, where one scenario follows another.
type stage struct {
	*testing.T
	n    *harness.Node
	cfg  emulator.Config
	p    *emulator.Plugin
	stop func() // ends the plugin
}

// newStage starts a node with a plugin of so many devices, which answers with CDI names: each is in a container as a variable and a node.
func newStage(t *testing.T, count int) *stage {
	t.Helper()
	var specs []string
	for i := range count {
		specs = append(specs, fmt.Sprintf(`{"name": "dev-%[1]d", "containerEdits": {"env": ["CDI_DEVICE=dev-%[1]d"], "deviceNodes": [{"path": "/dev/cdi-dev-%[1]d", "hostPath": "/dev/null"}]}}`, i))
	}
	const kind = "scenarios.example.com/device"
	spec := `{"cdiVersion": "0.5.0", "kind": "` + kind + `", "devices": [` + strings.Join(specs, ",") + `]}`
	n := harness.StartNode(t, harness.Options{CDISpecs: map[string]string{"plugin.json": spec}})
	n.LoadImage(archive(t))
	s := &stage{T: t, n: n, cfg: emulator.Config{Dir: n.PluginDir(), Resource: emulated, Devices: emulator.Devices(count, 0), CDIKind: kind}}
	s.plug()
	awaitResource(t, n, count, count)
	return s
}

func (s *stage) plug() { s.p, s.stop = runPlugin(s.T, s.cfg) }

// run runs a pod that asks for a device, and returns which one it says that it has.
func (s *stage) run(name string) string {
	s.Helper()
	s.n.Apply(s.manifest(name, ""))
	s.n.Kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	return s.says(name, "c")
}

const tellsDevice = "echo $EMULATED_DEVICES $CDI_DEVICE $(cd /dev; echo cdi-*); trap 'exit 0' TERM; sleep 3600 & wait"

func (s *stage) manifest(name, more string) string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {"nodeName": %q, "terminationGracePeriodSeconds": 0, %s "containers": [%s]}}`,
		name, s.n.Name, more, s.container("c", tellsDevice))
}

func (s *stage) container(name, script string) string {
	return fmt.Sprintf(`{"name": %q, "image": %q, "imagePullPolicy": "Never", "resources": {"limits": {%q: 1}}, "command": ["sh", "-c", %q]}`, name, busybox, emulated, script)
}

// says returns the device that a container says it has, by its plugin's variable, by CDI's variable and by CDI's node.
func (s *stage) says(pod, container string) (device string) {
	s.Helper()
	harness.Eventually(s, pod+" tells its device", func() (bool, string) {
		words := strings.Fields(s.n.Kubectl("logs", pod, "-c", container))
		if len(words) != 3 {
			return false, fmt.Sprint(words)
		}
		device = words[0]
		if words[1] != device || words[2] != "cdi-"+device {
			s.Fatalf("container %s of %s has %q", container, pod, words)
		}
		return true, device
	})
	return device
}

// restarted ends a pod's container, and returns the device that its next one says it has.
func (s *stage) restarted(name string, count int32) string {
	s.Helper()
	endContainer(s.n, name)
	awaitRestarts(s.T, s.n, name, count)
	return s.says(name, "c")
}

// listed is what exporters are told: "pod/container=device ..." of all that have some, and which pods there are.
func (s *stage) listed() (has string, pods int) {
	s.Helper()
	conn, err := grpc.NewClient("unix://"+s.n.PodResourcesSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.Fatal(err)
	}
	defer conn.Close()
	list, err := podresources.NewPodResourcesListerClient(conn).List(s.Context(), &podresources.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		s.Fatal(err)
	}
	var all []string
	for _, p := range list.PodResources {
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				if d.ResourceName != emulated || d.Topology != nil { // the plugin tells no topology
					s.Errorf("exporters are told %v", d)
				}
				all = append(all, p.Name+"/"+c.Name+"="+strings.Join(d.DeviceIds, ","))
			}
		}
	}
	return strings.Join(all, " "), len(list.PodResources)
}

// expect compares what exporters are told.
func (s *stage) expect(when, want string) {
	s.Helper()
	if got, _ := s.listed(); got != want {
		s.Errorf("%s exporters are told %q, want %q", when, got, want)
	}
}

func (s *stage) containerID(name string) string {
	s.Helper()
	var p corev1.Pod
	getPod(s.T, s.n, name, &p)
	if len(p.Status.ContainerStatuses) == 0 {
		return ""
	}
	return p.Status.ContainerStatuses[0].ContainerID
}

// TestDeviceAssignmentsAreKept: whoever restarts, alone or with others, a pod has the devices that it had, and exporters are told of them.
func TestDeviceAssignmentsAreKept(t *testing.T) {
	s := newStage(t, 2)
	n := s.n
	d1 := s.run("p1")
	const told = "p1/c=dev-0 p2/c=dev-1"
	if d1 != "dev-0" {
		t.Errorf("p1 has %s", d1)
	}

	// The container restarts; neither the node nor the plugin does.
	if d := s.restarted("p1", 1); d != d1 {
		t.Errorf("after a restart of its container p1 has %s", d)
	}
	s.expect("after a restart of a container", "p1/c=dev-0")
	if d := s.run("p2"); d != "dev-1" {
		t.Errorf("p2 has %s", d)
	}
	s.expect("with another pod", told)

	// The node restarts; neither the containers nor the plugin do. Then the container does as well.
	id := s.containerID("p1")
	n.Kill()
	n.Start()
	awaitResource(t, n, 2, 2)
	s.expect("after a restart of the node", told)
	if now := s.containerID("p1"); now != id {
		t.Errorf("p1 was touched: %s, %s", id, now)
	}
	if d := s.restarted("p2", 1); d != "dev-1" { // p1's next restart would be one with back-off
		t.Errorf("after a restart of its container and the node p2 has %s", d)
	}
	s.expect("after a restart of a container and the node", told)

	// The plugin restarts, alone and then with the node.
	for _, withNode := range []bool{false, true} {
		s.stop()
		awaitResource(t, n, 2, 0)
		if withNode {
			n.Kill()
			n.Start()
			s.expect("before the plugin is back", told)
		}
		s.plug()
		awaitResource(t, n, 2, 2)
		s.expect("after a restart of the plugin", told)
		if now := s.containerID("p1"); now != id {
			t.Errorf("p1 was touched: %s, %s", id, now)
		}
	}
	if a := s.p.Allocations.Load(); a != 0 {
		t.Errorf("%d allocations for pods that have their devices", a)
	}

	// As after a reboot, but in the same one: the pods' containers are gone, the node restarts, and the plugin does not come back. Kubelets
	// reject the pods then. Here each starts with the answer that is on record, with the device that it had.
	s.stop()
	awaitResource(t, n, 2, 0)
	s.removeSandboxes()
	n.Kill()
	n.Start()
	harness.Eventually(t, "p1 has another container", func() (bool, string) {
		now := s.containerID("p1")
		return now != "" && now != id, now
	})
	n.Kubectl("wait", "--for=condition=Ready", "pod/p1", "pod/p2", "--timeout=60s")
	if d := s.says("p1", "c"); d != d1 {
		t.Errorf("after its sandbox was lost p1 has %s", d)
	}
	s.expect("after the sandboxes were lost", told)
	n.Apply(s.manifest("late", ""))
	awaitHeld(t, n, "late", "has not told its devices again since the node was started")
}

// removeSandboxes has the runtime remove all pods, as nobody but its agent should.
func (s *stage) removeSandboxes() {
	s.Helper()
	conn, err := grpc.NewClient("unix://"+s.n.CRISocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(s.Context(), 60*time.Second*harness.SlowFactor())
	defer cancel()
	rt := cri.NewRuntimeServiceClient(conn)
	all, err := rt.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		s.Fatal(err)
	}
	for _, sandbox := range all.Items {
		if _, err := rt.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox.Id}); err != nil {
			s.Fatal(err)
		}
	}
}

// TestDevicesOfPodsInEveryPhase: those of init containers, of pods that have finished, and of such whose allocation takes its time.
func TestDevicesOfPodsInEveryPhase(t *testing.T) {
	begun, answer := make(chan struct{}, 1), make(chan struct{})
	open := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(open)
	s := newStage(t, 2)
	n := s.n

	// An init container hands its device down to the pod's container. Exporters are told of the latter.
	init := s.container("init-1", strings.TrimSuffix(tellsDevice, "; trap 'exit 0' TERM; sleep 3600 & wait"))
	n.Apply(s.manifest("initial", `"initContainers": [`+init+`],`))
	n.Kubectl("wait", "--for=condition=Ready", "pod/initial", "--timeout=60s")
	first, regular := s.says("initial", "init-1"), s.says("initial", "c")
	if first != regular {
		t.Errorf("the init container has %s, the pod's container %s", first, regular)
	}
	s.expect("of a pod with an init container", "initial/c="+regular)
	n.Kubectl("delete", "pod", "initial", "--timeout=60s")

	// A pod that has succeeded stays so when the node restarts without the plugin, and is not told to exporters.
	n.Apply(strings.Replace(s.manifest("done", `"restartPolicy": "Never",`), "sleep 3600 & wait", "true", 1))
	n.Kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/done", "--timeout=60s")
	if d := s.says("done", "c"); d == "" {
		t.Error("it had no device")
	}
	s.stop()
	awaitResource(t, n, 2, 0)
	n.Kill()
	n.Start()
	n.Apply(s.manifest("slow", ""))
	awaitHeld(t, n, "slow", "has not told its devices again since the node was started")
	var done corev1.Pod
	if getPod(t, n, "done", &done); done.Status.Phase != corev1.PodSucceeded || done.Status.Reason != "" {
		t.Errorf("the pod is %s, %s", done.Status.Phase, done.Status.Reason)
	}
	if has, pods := s.listed(); has != "" || pods != 1 {
		t.Errorf("exporters are told of %d pods, which have %q", pods, has)
	}

	// While Allocate is under way exporters are told of the pod, and not of the device.
	s.cfg.Hooks.Allocate = func(ctx context.Context, ids []string) (*v1beta1.AllocateResponse, error) {
		begun <- struct{}{}
		select {
		case <-answer:
		case <-ctx.Done():
		}
		return &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{{
			Envs: map[string]string{"EMULATED_DEVICES": ids[0]}, CdiDevices: []*v1beta1.CDIDevice{{Name: s.cfg.CDIKind + "=" + ids[0]}},
		}}}, ctx.Err()
	}
	s.plug()
	<-begun
	if has, pods := s.listed(); has != "" || pods != 1 {
		t.Errorf("exporters are told of %d pods, which have %q", pods, has)
	}
	open()
	n.Kubectl("wait", "--for=condition=Ready", "pod/slow", "--timeout=60s")
	s.expect("after the allocation", "slow/c="+s.says("slow", "c"))
}
