package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/devices"
)

func isReady(st v1.PodStatus) bool {
	return slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

// isRestarted says that the first container runs for the second time. The status may be from before the agent had told of any container.
func isRestarted(st v1.PodStatus) bool {
	return len(st.ContainerStatuses) > 0 && st.ContainerStatuses[0].RestartCount == 1 && isReady(st)
}

func TestPodRuns(t *testing.T) {
	b := newBench(t)
	b.create(pod("p", func(p *v1.Pod) {
		p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
		p.Spec.Containers[0].Args = []string{"at", "$(IP)"}
	}))
	st := b.status("p", "is ready", isReady)
	cs := st.ContainerStatuses[0]
	id := b.running("a")
	if st.Phase != v1.PodRunning || st.PodIP != "10.61.0.9" || st.HostIP != "127.0.0.1" || cs.ContainerID != "fake://"+id || !cs.Ready {
		t.Errorf("status %+v", st)
	}
	if !slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue }) {
		t.Error("the binder's condition is lost")
	}
	cfg := b.rt.Config(id)
	if strings.Join(cfg.Args, " ") != "at 10.61.0.9" {
		t.Errorf("args %q", cfg.Args)
	}
	var paths []string
	for _, m := range cfg.Mounts {
		paths = append(paths, m.ContainerPath)
	}
	if strings.Join(paths, " ") != "/etc/hosts /dev/termination-log" {
		t.Errorf("mounts %q", paths)
	}
	b.eventually("events are told", func() bool {
		e := b.events()
		return e["Pulled"] == 1 && e["Created"] == 1 && e["Started"] == 1
	})
}

// TestAPodThatNobodyBound: one that was created with its node has the condition of one that a binder gave its node.
func TestAPodThatNobodyBound(t *testing.T) {
	b := newBench(t)
	b.create(pod("p", func(p *v1.Pod) { p.Status.Conditions = nil }))
	b.status("p", "is scheduled", func(st v1.PodStatus) bool {
		return slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue && !c.LastTransitionTime.IsZero()
		})
	})
}

func TestDeletion(t *testing.T) {
	b := newBench(t)
	b.create(pod("p"))
	b.phase("p", v1.PodRunning)
	begun := time.Now()
	b.delete("p", 30)
	b.noPod("p")
	if took := time.Since(begun); took > 25*time.Second { // of a grace of 30 s
		t.Errorf("a container that ends at SIGTERM took %s to go", took)
	}
	if s, c := b.rt.Count(); s+c != 0 {
		t.Errorf("%d sandboxes and %d containers are left", s, c)
	}
	b.nothingLeft("p")
}

func TestDeletionGrace(t *testing.T) {
	b := newBench(t)
	b.rt.Deaf("a")
	b.create(pod("p"))
	b.phase("p", v1.PodRunning)
	begun := time.Now()
	b.delete("p", 1)
	b.noPod("p")
	if took := time.Since(begun); took < 900*time.Millisecond || took > 25*time.Second { // a kubelet's own grace is 30 s
		t.Errorf("a grace of 1 s took %s", took)
	}
}

// TestForcedDeletionOvertakes: a pod that is gone from the API server is not left the rest of its grace.
func TestForcedDeletionOvertakes(t *testing.T) {
	b := newBench(t)
	b.rt.Deaf("a")
	b.create(pod("p"))
	b.phase("p", v1.PodRunning)
	b.delete("p", 3600)
	b.eventually("the container is being stopped", func() bool { return slices.ContainsFunc(b.rt.Calls(), isStop) })
	if err := b.kube.CoreV1().Pods("default").Delete(b.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.eventually("all is gone", func() bool { s, c := b.rt.Count(); return s+c == 0 })
	b.nothingLeft("p")
}

func isStop(call string) bool { return strings.HasPrefix(call, "StopContainer ") }

func TestRestartAndBackOff(t *testing.T) {
	b := newBench(t)
	b.create(pod("p", func(p *v1.Pod) {
		p.Spec.Containers[0].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
	}))
	first := b.running("a")
	message := filepath.Join(b.dir, "pods", "uid-p", "containers", "a", "0")
	if err := os.WriteFile(message, []byte("my last words"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.rt.Exit(first, 3)
	b.eventually("it is restarted at once", func() bool { ids := b.rt.Running("a"); return len(ids) == 1 && ids[0] != first })
	st := b.status("p", "tells of the restart", isRestarted)
	last := st.ContainerStatuses[0].LastTerminationState.Terminated
	if last == nil || last.ExitCode != 3 || last.Message != "my last words" || last.ContainerID != "fake://"+first {
		t.Errorf("last state %+v", last)
	}
	b.rt.Exit(b.running("a"), 4)
	st = b.status("p", "backs off", func(st v1.PodStatus) bool {
		w := st.ContainerStatuses[0].State.Waiting
		return w != nil && w.Reason == "CrashLoopBackOff"
	})
	if st.Phase != v1.PodRunning || isReady(st) || st.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode != 4 {
		t.Errorf("status %+v", st)
	}
	b.eventually("an event tells of it", func() bool { return b.events()["BackOff"] == 1 })
	// Only the last dead container is kept.
	b.eventually("the older one is removed", func() bool { _, c := b.rt.Count(); return c == 1 })
}

func TestCompletion(t *testing.T) {
	b := newBench(t)
	b.create(pod("p", func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }))
	b.rt.Exit(b.running("a"), 0)
	b.phase("p", v1.PodSucceeded)
	b.eventually("the sandbox is stopped and kept", func() bool { s, c := b.rt.Count(); return len(b.rt.Sandboxes()) == 0 && s == 1 && c == 1 })
	b.delete("p", 0)
	b.noPod("p")
	b.nothingLeft("p")
}

func TestInitContainers(t *testing.T) {
	b := newBench(t)
	b.create(pod("p", func(p *v1.Pod) {
		p.Spec.InitContainers = []v1.Container{{Name: "i", Image: "img"}, {Name: "j", Image: "img"}}
	}))
	b.rt.Exit(b.running("i"), 0)
	b.rt.Exit(b.running("j"), 0)
	st := b.phase("p", v1.PodRunning)
	if len(st.InitContainerStatuses) != 2 || st.InitContainerStatuses[1].State.Terminated == nil {
		t.Errorf("init containers %+v", st.InitContainerStatuses)
	}
}

func TestImages(t *testing.T) {
	b := newBench(t)
	b.rt.PullFails("broken", status.Error(codes.Unavailable, "no route"))
	b.rt.PullFails("good", nil)
	b.create(pod("broken", func(p *v1.Pod) { p.Spec.Containers[0].Image = "broken" }))
	b.create(pod("never", func(p *v1.Pod) {
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "absent", v1.PullNever
	}))
	b.create(pod("good", func(p *v1.Pod) { p.Spec.Containers[0].Image = "good" }))
	waits := func(reason string) func(v1.PodStatus) bool {
		return func(st v1.PodStatus) bool {
			return len(st.ContainerStatuses) == 1 && st.ContainerStatuses[0].State.Waiting != nil && st.ContainerStatuses[0].State.Waiting.Reason == reason
		}
	}
	st := b.status("broken", "shows the error", waits("ErrImagePull"))
	if m := st.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(m, "no route") {
		t.Errorf("message %q", m)
	}
	b.status("never", "shows the error", waits("ErrImageNeverPull"))
	b.status("good", "is ready", isReady)
	b.status("broken", "backs off", waits("ImagePullBackOff"))
	b.rt.HaveImage("absent")
	b.status("never", "is ready once the image is there", isReady)
}

// TestDeletionCancelsPull: a pull that hangs does not hold a deleted pod.
func TestDeletionCancelsPull(t *testing.T) {
	b := newBench(t)
	b.rt.PullFails("slow", status.Error(codes.DeadlineExceeded, ""))
	b.create(pod("p", func(p *v1.Pod) { p.Spec.Containers[0].Image = "slow" }))
	b.eventually("the pull has begun", func() bool { return slices.Contains(b.rt.Calls(), "PullImage slow") })
	b.delete("p", 30)
	b.noPod("p")
}

func TestDevices(t *testing.T) {
	b := newBench(t)
	b.create(pod("p", wantsWidget))
	st := b.status("p", "waits for its device", func(st v1.PodStatus) bool { return st.Reason == "DevicesNotReady" })
	if !strings.Contains(st.Message, "example.com/widget") || st.Phase != v1.PodPending {
		t.Errorf("status %s: %q", st.Phase, st.Message)
	}
	if s, _ := b.rt.Count(); s != 0 {
		t.Error("a sandbox was made without the device")
	}
	b.devices.set(1)
	b.status("p", "is ready", isReady)
	cfg := b.rt.Config(b.running("a"))
	if d := cfg.CDIDevices; len(d) != 1 || d[0].Name != "example.com/widget=0" {
		t.Errorf("devices %v", d)
	}
	if len(cfg.Devices) != 1 || cfg.Devices[0].ContainerPath != "/dev/widget" || cfg.Annotations["example.com/w"] != "0" || cfg.Annotations[devices.Annotation] != "record of a" {
		t.Errorf("device nodes %v, annotations %v", cfg.Devices, cfg.Annotations)
	}
	// The second waits until the first has given its device back.
	b.create(pod("q", wantsWidget))
	b.status("q", "waits", func(st v1.PodStatus) bool { return st.Reason == "DevicesNotReady" })
	b.delete("p", 0)
	b.noPod("p")
	b.devices.set(1)
	b.status("q", "is ready", func(st v1.PodStatus) bool { return isReady(st) && st.Reason == "" && st.Message == "" })
	node, err := b.kube.CoreV1().Nodes().Get(t.Context(), "node", metav1.GetOptions{})
	if err != nil || node.Status.Allocatable.Name("example.com/widget", "").Value() != 1 {
		t.Errorf("node %+v: %v", node.Status.Allocatable, err)
	}
}

// TestDevicesAreRefused: a pod that is never to have its devices fails, in the words of whoever refuses it, and nothing of it is made.
func TestDevicesAreRefused(t *testing.T) {
	b := newBench(t)
	b.devices.refuse = "example.com/widget is refused: firmware too old"
	b.create(pod("p", wantsWidget))
	st := b.phase("p", v1.PodFailed)
	if st.Reason != "UnexpectedAdmissionError" || st.Message != "example.com/widget is refused: firmware too old" {
		t.Errorf("status %s: %q", st.Reason, st.Message)
	}
	if s, _ := b.rt.Count(); s != 0 {
		t.Error("a sandbox was made")
	}
}

// TestHoldings: at its start the agent tells the device manager what the containers in the runtime hold, but for those of pods that have finished.
func TestHoldings(t *testing.T) {
	b := newBench(t)
	b.devices.set(2)
	b.create(pod("runs", wantsWidget))
	b.create(pod("ends", wantsWidget, func(p *v1.Pod) {
		p.Spec.RestartPolicy, p.Spec.Containers[0].Name = v1.RestartPolicyNever, "e"
	}))
	b.running("a")
	b.rt.Exit(b.running("e"), 0)
	b.phase("ends", v1.PodSucceeded)
	b.stop()
	b.devices.reconciled = false
	b.start()
	b.eventually("the holdings are told", func() bool {
		b.devices.mu.Lock()
		defer b.devices.mu.Unlock()
		return b.devices.reconciled
	})
	if h := b.devices.holdings; len(h) != 1 || h[0].PodName != "runs" || h[0].Container != "a" || h[0].Record != "record of a" {
		t.Errorf("holdings %+v", h)
	}
}

// TestLateSandbox: a pod may be deleted while its sandbox is made, which goes on at the runtime. Whatever is ready then is removed at once.
func TestLateSandbox(t *testing.T) {
	b := newBench(t)
	b.create(pod("stays"))
	b.running("a")
	_, err := b.rt.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "gone", Namespace: "default", Uid: "uid-gone"},
		Labels:   map[string]string{"io.kubernetes.pod.name": "gone", "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": "uid-gone"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	b.eventually("the late sandbox is removed", func() bool { return b.rt.Sandbox("uid-gone") == nil })
	b.running("a")
}

// TestAgentRestart: pods run on while the agent is away, and what happened meanwhile is told.
func TestAgentRestart(t *testing.T) {
	b := newBench(t)
	b.create(pod("stays"))
	b.create(pod("crashes", func(p *v1.Pod) { p.Spec.Containers[0].Name = "c" }))
	b.create(pod("goes", func(p *v1.Pod) { p.Spec.Containers[0].Name = "g" }))
	stays, crashes := b.running("a"), b.running("c")
	b.running("g")
	for _, name := range []string{"stays", "crashes", "goes"} {
		b.phase(name, v1.PodRunning)
	}
	b.stop()
	if got := b.running("a"); got != stays {
		t.Fatalf("the container is %s, was %s", got, stays)
	}
	b.rt.Calls()
	b.rt.Exit(crashes, 9)
	if err := b.kube.CoreV1().Pods("default").Delete(t.Context(), "goes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.start()
	st := b.status("crashes", "was restarted", isRestarted)
	if st.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode != 9 {
		t.Errorf("last state %+v", st.ContainerStatuses[0].LastTerminationState)
	}
	b.eventually("the orphan is removed", func() bool { return len(b.rt.Running("g")) == 0 && len(b.rt.Sandboxes()) == 2 })
	b.nothingLeft("goes")
	if got := b.running("a"); got != stays {
		t.Errorf("the untouched container is %s, was %s", got, stays)
	}
	for _, call := range b.rt.Calls() {
		if strings.Contains(call, stays) || strings.HasSuffix(call, " stays") {
			t.Errorf("the untouched pod was touched: %s", call)
		}
	}
}

// TestNothingIsLeftOfAPodThatNobodyKnows: an agent was killed before it had made a pod's sandbox, or after it had removed it, and the pod's
// object went meanwhile. Files that are no pod's of ours stay.
func TestNothingIsLeftOfAPodThatNobodyKnows(t *testing.T) {
	b := newBench(t)
	b.create(pod("stays"))
	b.phase("stays", v1.PodRunning)
	b.stop()
	for _, dir := range []string{filepath.Join(b.dir, "pods", "uid-gone"), filepath.Join(b.cfg.PodLogsDir, "default_gone_uid-gone", "c"), filepath.Join(b.cfg.PodLogsDir, "default_other_uid-other")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.start()
	b.nothingLeft("gone")
	for _, dir := range []string{"default_stays_uid-stays", "default_other_uid-other"} {
		if _, err := os.Stat(filepath.Join(b.cfg.PodLogsDir, dir)); err != nil {
			t.Error(err)
		}
	}
}

// TestRuntimeRestart: the agent goes on after the runtime was away.
func TestRuntimeRestart(t *testing.T) {
	b := newBench(t)
	b.create(pod("p"))
	b.phase("p", v1.PodRunning)
	id := b.running("a")
	b.rt.Stop()
	b.create(pod("q", func(p *v1.Pod) { p.Spec.Containers[0].Name = "b" }))
	b.rt.Exit(id, 1)
	b.rt.Serve(t)
	b.status("q", "is ready", isReady)
	b.status("p", "was restarted", isRestarted)
}

func TestSandboxDies(t *testing.T) {
	b := newBench(t)
	b.create(pod("p"))
	b.phase("p", v1.PodRunning)
	b.rt.KillSandbox(b.rt.Sandboxes()[0])
	st := b.status("p", "is back", isRestarted)
	if st.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode != 255 {
		t.Errorf("last state %+v", st.ContainerStatuses[0].LastTerminationState)
	}
}

func TestActiveDeadline(t *testing.T) {
	b := newBench(t)
	b.create(pod("p", func(p *v1.Pod) { seconds := int64(1); p.Spec.ActiveDeadlineSeconds = &seconds }))
	b.phase("p", v1.PodRunning)
	if st := b.phase("p", v1.PodFailed); st.Reason != "DeadlineExceeded" {
		t.Errorf("reason %q", st.Reason)
	}
	if len(b.rt.Running("a")) != 0 {
		t.Error("it runs on")
	}
}

func TestUnsupportedFieldFails(t *testing.T) {
	b := newBench(t)
	b.create(pod("p", func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}}}
	}))
	st := b.phase("p", v1.PodFailed)
	if !strings.Contains(st.Message, "spec.volumes[0].csi") {
		t.Errorf("message %q", st.Message)
	}
}

// A pod whose names make a log directory that no file system can name fails, and goes.
func TestNamesTooLong(t *testing.T) {
	b := newBench(t)
	name := strings.Repeat("n", 200)
	b.create(pod(name))
	if st := b.phase(name, v1.PodFailed); st.Reason != "NameTooLong" || !strings.Contains(st.Message, "a name of 413 bytes") {
		t.Errorf("status %q: %q", st.Reason, st.Message)
	}
	b.delete(name, 1)
	b.noPod(name)
	b.nothingLeft(name)
}

// TestHostPorts: of two pods that ask for a port of the host, the one that is begun has it, also after a restart of the agent.
func TestHostPorts(t *testing.T) {
	b := newBench(t)
	port := func(ip string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080, HostIP: ip, Protocol: v1.ProtocolTCP}}
		}
	}
	b.create(pod("first", port("10.0.0.1")))
	b.create(pod("beside", port("10.0.0.2")))
	b.status("first", "is ready", isReady)
	b.status("beside", "is ready", isReady)
	rejected := func(name string) {
		t.Helper()
		b.create(pod(name, port("")))
		if st := b.phase(name, v1.PodFailed); st.Reason != "NodePorts" || !strings.Contains(st.Message, "didn't have free ports") {
			t.Errorf("status %+v", st)
		}
	}
	rejected("second")
	b.stop()
	b.start()
	rejected("third")
	b.delete("first", 1)
	b.delete("beside", 1)
	b.noPod("first")
	b.noPod("beside")
	b.create(pod("last", port("")))
	b.status("last", "is ready", isReady)
}

func TestConfigMapVolume(t *testing.T) {
	b := newBench(t)
	maps := b.kube.CoreV1().ConfigMaps("default")
	b.create(pod("p", func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}}}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
	}))
	b.eventually("it is told what is missing", func() bool { return b.events()["FailedMount"] > 0 })
	cm := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cm"}, Data: map[string]string{"k": "one"}}
	if _, err := maps.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.status("p", "is ready", isReady)
	file := filepath.Join(b.dir, "pods", "uid-p", "volumes", "v", "k")
	content := func() string { data, _ := os.ReadFile(file); return string(data) }
	if content() != "one" {
		t.Errorf("content %q", content())
	}
	cm = cm.DeepCopy()
	cm.Data["k"] = "two"
	if _, err := maps.Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.eventually("the file follows", func() bool { return content() == "two" })
}

func TestNode(t *testing.T) {
	b := newBench(t)
	nodes := b.kube.CoreV1().Nodes()
	node, err := nodes.Get(t.Context(), "node", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods, v1.ResourceEphemeralStorage} {
		if q := node.Status.Allocatable[r]; q.IsZero() {
			t.Errorf("no allocatable %s", r)
		}
	}
	if node.Labels[v1.LabelHostname] != "node" || node.Status.NodeInfo.ContainerRuntimeVersion != "fake://1.0" ||
		node.Status.NodeInfo.KubeletVersion != "v1.37.2-monopod.0.1" || node.Status.DaemonEndpoints.KubeletEndpoint.Port == 0 {
		t.Errorf("node %+v", node)
	}
	b.eventually("the lease is held", func() bool {
		l, err := b.kube.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), "node", metav1.GetOptions{})
		return err == nil && *l.Spec.HolderIdentity == "node" && *l.Spec.LeaseDurationSeconds == 40
	})
	// A device that comes is told at once, and what others have written stays.
	node.Labels["mine"], node.Spec.Taints = "x", []v1.Taint{{Key: "t", Effect: v1.TaintEffectNoSchedule}}
	if _, err := nodes.Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.devices.set(2)
	b.eventually("the devices are told", func() bool {
		node, err = nodes.Get(t.Context(), "node", metav1.GetOptions{})
		return err == nil && node.Status.Capacity.Name("example.com/widget", "").Value() == 2
	})
	if node.Labels["mine"] != "x" || len(node.Spec.Taints) != 1 {
		t.Errorf("others' labels and taints: %v %v", node.Labels, node.Spec.Taints)
	}
}

// TestTheNodeIsDeleted: the node comes back, and its pods do not notice.
func TestTheNodeIsDeleted(t *testing.T) {
	b := newBench(t)
	// The fake tells a watch nothing of what happened between its list and its beginning; a second agent finds the node there.
	b.stop()
	b.kube.ClearActions()
	b.start()
	b.eventually("the node is watched", func() bool {
		return slices.ContainsFunc(b.kube.Actions(), func(a clienttesting.Action) bool { return a.Matches("watch", "nodes") })
	})
	b.create(pod("p"))
	b.status("p", "is ready", isReady)
	id := b.running("a")
	nodes := b.kube.CoreV1().Nodes()
	if err := nodes.Delete(t.Context(), "node", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.eventually("the node is ready again", func() bool {
		n, err := nodes.Get(t.Context(), "node", metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue })
	})
	if now := b.running("a"); now != id {
		t.Errorf("the container is %s, was %s", now, id)
	}
}

// TestRuntimeComesLate: a node whose runtime is away at the start says so, and begins when it is there.
func TestRuntimeComesLate(t *testing.T) {
	b := newBench(t)
	b.stop()
	b.rt.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	a := &Agent{cfg: b.cfg, log: b.cfg.Log, kube: b.kube, ready: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	b.create(pod("p"))
	select {
	case <-a.Ready():
		t.Error("ready without a runtime")
	case <-time.After(100 * time.Millisecond):
	}
	b.rt.Serve(t)
	<-a.Ready()
	b.status("p", "is ready", isReady)
}

// TestQuiet: an agent with nothing to do asks the runtime nothing.
func TestQuiet(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"p", "q", "r"} {
		b.create(pod(name))
	}
	for _, name := range []string{"p", "q", "r"} {
		b.status(name, "is ready", isReady)
	}
	// Everything is looked at once more a second after the stream of events was opened.
	quietFor, last, since := 1500*time.Millisecond, b.rt.Queries.Load(), time.Now()
	b.eventually("the runtime is left alone", func() bool {
		if n := b.rt.Queries.Load(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > quietFor
	})
}

func TestDownwardVolume(t *testing.T) {
	b := newBench(t)
	b.create(pod("p", func(p *v1.Pod) {
		p.Labels = map[string]string{"l": "1"}
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
			Items: []v1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}}}
	}))
	b.status("p", "is ready", isReady)
	p, err := b.kube.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Labels["l"] = "2"
	if _, err := b.kube.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.eventually("the file follows", func() bool {
		data, _ := os.ReadFile(filepath.Join(b.dir, "pods", "uid-p", "volumes", "v", "labels"))
		return string(data) == `l="2"`
	})
}

// TestAVolumeThatFails: it is told by an event of its own, keeps the pod from having a sandbox, and no other volume of the pod from being made, nor what is in it.
func TestAVolumeThatFails(t *testing.T) {
	b := newBench(t)
	volume := func(name string) string { return filepath.Join(b.dir, "pods", "uid-p", "volumes", name) }
	b.create(pod("p", func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{
			{Name: "first", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}}},
			{Name: "second", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		}
	}))
	b.create(pod("other"))
	b.status("other", "is ready", isReady)
	b.eventually("the other volume is there", func() bool { _, err := os.Stat(volume("second")); return err == nil })
	if e := b.told("p", "FailedMount"); e.Message != `MountVolume.SetUp failed for volume "first" : configmap "cm" not found` {
		t.Errorf("told is %q", e.Message)
	}
	b.status("p", "says why it waits", func(st v1.PodStatus) bool { return strings.Contains(st.Message, `configmap "cm" not found`) })
	if err := os.WriteFile(filepath.Join(volume("second"), "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if sandboxes, _ := b.rt.Count(); sandboxes != 1 {
		t.Errorf("%d sandboxes", sandboxes)
	}
	cm := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cm"}, Data: map[string]string{"k": "one"}}
	if _, err := b.kube.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.status("p", "is ready", isReady)
	for _, there := range []string{filepath.Join(volume("first"), "k"), filepath.Join(volume("second"), "kept")} {
		if _, err := os.Stat(there); err != nil {
			t.Error(err)
		}
	}
	b.delete("p", 0)
	b.noPod("p")
	b.nothingLeft("p")
}
