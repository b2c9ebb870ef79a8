package pod

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
)

func debugger(name string) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{TargetContainerName: "web", EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "busybox:1",
		ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile}}
}

func TestEphemeralContainers(t *testing.T) {
	f := newFixture(t)
	pod := f.create("p")
	add := func(change func(*corev1.Pod)) (*corev1.Pod, error) {
		t.Helper()
		pod := f.get("p")
		change(pod)
		return f.update(f.Ephemeral, pod)
	}
	added, err := add(func(p *corev1.Pod) {
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{debugger("one")}
		p.Spec.Containers[0].Image, p.Spec.NodeName, p.Status.Phase = "other", "n", corev1.PodRunning
		p.Labels["a"], p.Annotations = "b", map[string]string{"c": "d"}
	})
	if err != nil || len(added.Spec.EphemeralContainers) != 1 || added.Generation != pod.Generation+1 {
		t.Fatalf("the first: %+v, %v", added, err)
	}
	if added.Spec.Containers[0].Image != pod.Spec.Containers[0].Image || added.Spec.NodeName != "" || added.Status.Phase != corev1.PodPending || added.Labels["a"] != "" || len(added.Annotations) > 0 {
		t.Errorf("something else has changed: %+v", added)
	}
	if again, err := add(func(*corev1.Pod) {}); err != nil || again.Generation != added.Generation {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	second, err := add(func(p *corev1.Pod) { // the order is nobody's
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{debugger("two"), p.Spec.EphemeralContainers[0]}
	})
	if err != nil || len(second.Spec.EphemeralContainers) != 2 || second.Generation != added.Generation+1 {
		t.Fatalf("the second: %+v, %v", second, err)
	}
	for what, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"taken away": {func(p *corev1.Pod) { p.Spec.EphemeralContainers = p.Spec.EphemeralContainers[:1] }, `existing ephemeral containers "one" may not be removed`},
		"changed":    {func(p *corev1.Pod) { p.Spec.EphemeralContainers[1].Image = "other" }, `existing ephemeral containers "one" may not be changed`},
		"twice": {func(p *corev1.Pod) { p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, debugger("web")) },
			`spec.ephemeralContainers[2].name: Duplicate value: "web"`},
		"for nobody": {func(p *corev1.Pod) {
			e := debugger("three")
			e.TargetContainerName = "none"
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, e)
		}, `spec.ephemeralContainers[2].targetContainerName: Not found: "none"`},
	} {
		if _, err := add(tc.change); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", what, err, tc.want)
		}
	}
	// Whoever updates the pod itself leaves them be.
	pod = f.get("p")
	pod.Labels["a"] = "b"
	if _, err := f.update(f.Pod, pod); err != nil {
		t.Errorf("update of a pod that has some: %v", err)
	}
	pod = f.get("p")
	pod.Spec.EphemeralContainers = nil
	if _, err := f.update(f.Pod, pod); err == nil || !strings.Contains(err.Error(), "spec.ephemeralContainers: Forbidden: pod updates may not change fields other than") {
		t.Errorf("taken away by an update of the pod: %v", err)
	}
	none := pod.DeepCopy()
	none.Name = "none"
	if _, err := f.update(f.Ephemeral, none); !apierrors.IsNotFound(err) {
		t.Errorf("of no pod: %v", err)
	}
}

func TestStaticPodsHaveNoEphemeralContainers(t *testing.T) {
	f := newFixture(t)
	pod := validPod()
	pod.Spec.NodeName, pod.Annotations = "n", map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	f.must(f.Pod.Create(f.ctx, pod, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}))
	pod = f.get(pod.Name)
	pod.Annotations = nil // that alone does not make it another pod
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{debugger("one")}
	if _, err := f.update(f.Ephemeral, pod); err == nil || !strings.Contains(err.Error(), "static pods do not support ephemeral containers") {
		t.Errorf("error %v", err)
	}
}

func TestGatedPods(t *testing.T) {
	f := newFixture(t)
	pod := validPod()
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
	pod = f.must(f.Pod.Create(f.ctx, pod, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}))
	is := func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonSchedulingGated &&
			c.Message == "Scheduling is blocked due to non-empty scheduling gates"
	}
	if !slices.ContainsFunc(pod.Status.Conditions, is) {
		t.Errorf("conditions %+v", pod.Status.Conditions)
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Name: "n"}}
	if _, err := f.Binding.Create(f.ctx, pod.Name, binding, nil, &metav1.CreateOptions{}); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "has non-empty .spec.schedulingGates") {
		t.Errorf("binding: %v", err)
	}
	pod.Spec.SchedulingGates = nil
	pod, err := f.update(f.Pod, pod)
	if err != nil || pod.Generation != 2 {
		t.Fatalf("without gates: %+v, %v", pod, err)
	}
	if _, err := f.Binding.Create(f.ctx, pod.Name, binding, nil, &metav1.CreateOptions{}); err != nil {
		t.Errorf("binding without gates: %v", err)
	}
}

// A writer of the status who knows nothing of generations takes none away.
func TestObservedGenerationsStay(t *testing.T) {
	f := newFixture(t)
	pod := f.create("p")
	pod.Status.ObservedGeneration = 1
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, ObservedGeneration: 1}}
	pod, err := f.update(f.Status, pod)
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.ObservedGeneration = 0
	pod.Status.Conditions = []corev1.PodCondition{{Type: "example.com/new", Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod, err = f.update(f.Status, pod)
	if err != nil || pod.Status.ObservedGeneration != 1 || pod.Status.Conditions[0].ObservedGeneration != 0 || pod.Status.Conditions[1].ObservedGeneration != 1 {
		t.Errorf("status %+v, %v", pod.Status, err)
	}
	pod.Status.ObservedGeneration, pod.Status.Conditions[1].ObservedGeneration = 2, 2
	if pod, err = f.update(f.Status, pod); err != nil || pod.Status.ObservedGeneration != 2 || pod.Status.Conditions[1].ObservedGeneration != 2 {
		t.Errorf("status %+v, %v", pod.Status, err)
	}
}
