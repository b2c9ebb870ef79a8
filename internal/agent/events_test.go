package agent

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// told waits for an event of an object, and returns it.
func (b *bench) told(object, reason string) (found v1.Event) {
	b.Helper()
	b.eventually(object+" has the event "+reason, func() bool {
		list, err := b.kube.CoreV1().Events("").List(b.Context(), metav1.ListOptions{})
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Name == object && e.Reason == reason {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// TestEventsAreAKubelets: those who look for a kubelet's events find them: by component and host, by object and container, by reason and words.
func TestEventsAreAKubelets(t *testing.T) {
	b := newBench(t)
	b.rt.PullFails("far", nil)
	b.create(pod("p", func(p *v1.Pod) {
		p.Spec.InitContainers = []v1.Container{{Name: "i", Image: "far", ImagePullPolicy: v1.PullIfNotPresent}}
	}))
	b.rt.Exit(b.running("i"), 0)
	b.running("a")
	type want struct{ object, reason, kind, path, message string }
	check := func(all ...want) {
		t.Helper()
		for _, w := range all {
			e := b.told(w.object, w.reason)
			if e.Source != (v1.EventSource{Component: "kubelet", Host: "node"}) || e.ReportingController != "kubelet" || e.ReportingInstance != "node" {
				t.Errorf("%s of %s is told by %+v, %s %s", w.reason, w.object, e.Source, e.ReportingController, e.ReportingInstance)
			}
			if e.Type != w.kind || e.InvolvedObject.FieldPath != w.path || !strings.HasPrefix(e.Message, w.message) || e.InvolvedObject.APIVersion != "v1" {
				t.Errorf("%s of %s is %s %q of %+v, want %+v", w.reason, w.object, e.Type, e.Message, e.InvolvedObject, w)
			}
		}
	}
	const normal, warning = v1.EventTypeNormal, v1.EventTypeWarning
	check(want{"p", "Pulling", normal, "spec.initContainers{i}", `Pulling image "far"`},
		want{"p", "Pulled", normal, "spec.initContainers{i}", `Successfully pulled image "far" in `},
		want{"p", "Created", normal, "spec.initContainers{i}", "Container created"},
		want{"p", "Started", normal, "spec.initContainers{i}", "Container started"},
		want{"node", "Starting", normal, "", "Starting kubelet."},
		want{"node", "NodeHasSufficientMemory", normal, "", "Node node status is now: NodeHasSufficientMemory"},
		want{"node", "NodeReady", normal, "", "Node node status is now: NodeReady"})

	second := int64(1)
	b.create(pod("late", func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds, p.Spec.Containers[0].Name = &second, "l" }))
	b.create(pod("first", func(p *v1.Pod) {
		p.Spec.Containers[0].Name, p.Spec.Containers[0].Ports = "f", []v1.ContainerPort{{HostPort: 4711, ContainerPort: 1}}
	}))
	b.running("f")
	b.create(pod("second", func(p *v1.Pod) { p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 4711, ContainerPort: 1}} }))
	b.devices.refuse = "example.com/widget is refused"
	b.create(pod("refused", wantsWidget))
	b.create(pod("mounts", func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "none"}}}}
	}))
	check(want{"late", "DeadlineExceeded", normal, "", "Pod was active on the node longer than the specified deadline"},
		want{"late", "Killing", normal, "spec.containers{l}", "Stopping container l"},
		want{"second", "NodePorts", warning, "", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		want{"refused", "UnexpectedAdmissionError", warning, "", "example.com/widget is refused"},
		want{"mounts", "FailedMount", warning, "", `MountVolume.SetUp failed for volume "v" : `})
	for _, name := range []string{"second/NodePorts", "refused/UnexpectedAdmissionError"} {
		object, reason, _ := strings.Cut(name, "/")
		if e := b.told(object, reason); e.Count != 1 {
			t.Errorf("%s is told %d times", name, e.Count)
		}
	}
	b.rt.Fail("StopContainer", status.Error(codes.Internal, "it does not listen"))
	b.delete("first", 0)
	check(want{"first", "FailedKillPod", warning, "", "error killing pod: "})
	b.rt.Fail("StopContainer", nil)
	b.noPod("first")
}

// TestAMissingConfigMapIsToldOnce: what is tried again tells of its image no more, and the ConfigMap ends the wait.
func TestAMissingConfigMapIsToldOnce(t *testing.T) {
	b := newBench(t)
	b.create(pod("p", func(p *v1.Pod) {
		p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}}}
	}))
	b.status("p", "lacks its ConfigMap", func(st v1.PodStatus) bool {
		return len(st.ContainerStatuses) == 1 && st.ContainerStatuses[0].State.Waiting != nil && st.ContainerStatuses[0].State.Waiting.Reason == "CreateContainerConfigError"
	})
	b.told("p", "Failed")
	other := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cm"}}
	if _, err := b.kube.CoreV1().ConfigMaps("default").Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.status("p", "is ready", isReady)
	if e := b.told("p", "Failed"); e.Count > 2 || e.Type != v1.EventTypeWarning || !strings.Contains(e.Message, `configmap "cm" not found`) {
		t.Errorf("told %d times: %s %q", e.Count, e.Type, e.Message)
	}
}
