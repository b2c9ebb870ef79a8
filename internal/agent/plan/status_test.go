package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func metaTime(t time.Time) *metav1.Time { m := metav1.NewTime(t); return &m }

func hash(container, h string) option { return func(in *Input) { in.Hashes[container] = h } }

func hashed(h string) func(*Container) { return func(c *Container) { c.Hash = h } }

func TestStatusFields(t *testing.T) {
	foreign := v1.PodCondition{Type: "example.com/open", Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(ago(time.Hour))}
	in := given(sandbox("s", 0, true), has("a", 4, "s", Running, func(c *Container) { c.ImageRef = "sha256:1" }), prior(v1.PodStatus{
		Conditions: []v1.PodCondition{foreign}, QOSClass: v1.PodQOSBurstable, StartTime: metaTime(ago(time.Hour)),
	}))
	st := Status(in)
	c := st.ContainerStatuses[0]
	switch {
	case st.ObservedGeneration != 3:
		t.Error("observedGeneration", st.ObservedGeneration)
	case st.PodIP != "10.61.0.5" || len(st.PodIPs) != 1:
		t.Error("podIP", st.PodIP, st.PodIPs)
	case st.HostIP != "10.0.0.1" || len(st.HostIPs) != 1:
		t.Error("hostIP", st.HostIP)
	case !st.StartTime.Equal(metaTime(ago(time.Hour))):
		t.Error("startTime", st.StartTime)
	case st.QOSClass != v1.PodQOSBurstable || !equality.Semantic.DeepEqual(st.Conditions[0], foreign):
		t.Error("what others wrote has changed", st.QOSClass, st.Conditions[0])
	case c.ContainerID != "rt://a4" || c.ImageID != "sha256:1" || c.RestartCount != 4 || !c.Ready || !*c.Started:
		t.Errorf("container %+v", c)
	}
}

// TestAnAttemptHasATime: what never ran has no start by the runtime, and clients would show the year 1.
func TestAnAttemptHasATime(t *testing.T) {
	never := func(c *Container) {
		c.StartedAt, c.FinishedAt, c.Reason, c.ExitCode = time.Time{}, ago(time.Second), "StartError", 128
	}
	st := Status(given(sandbox("s", 0, true), has("a", 0, "s", Exited, never))).ContainerStatuses[0]
	for _, state := range []v1.ContainerState{st.State, st.LastTerminationState} {
		if end := state.Terminated; end != nil && (end.StartedAt.IsZero() || !end.StartedAt.Equal(&end.FinishedAt)) {
			t.Errorf("started %v, finished %v", end.StartedAt, end.FinishedAt)
		}
	}
	if st.State.Terminated == nil && st.LastTerminationState.Terminated == nil {
		t.Errorf("no end is told: %+v", st)
	}
}

// TestPodScheduled: a pod that was created with its node is told to have one; the words of who bound another one stand.
func TestPodScheduled(t *testing.T) {
	bound := v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue, ObservedGeneration: 3, LastTransitionTime: metav1.NewTime(ago(time.Hour))}
	waited := v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "Unschedulable", LastTransitionTime: metav1.NewTime(ago(time.Hour))}
	for name, c := range map[string]struct {
		prior []v1.PodCondition
		since time.Time
	}{
		"never bound": {nil, now}, "bound": {[]v1.PodCondition{bound}, ago(time.Hour)}, "not told to be bound": {[]v1.PodCondition{waited}, now},
	} {
		in := given(prior(v1.PodStatus{Conditions: c.prior}))
		want := bound
		want.LastTransitionTime = metav1.NewTime(c.since)
		st := Status(in)
		i := slices.IndexFunc(st.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodScheduled })
		if i < 0 || !equality.Semantic.DeepEqual(st.Conditions[i], want) {
			t.Errorf("%s: conditions %+v", name, st.Conditions)
			continue
		}
		// The API server's version of before the agent's first write changes nothing.
		in.Now, in.Prior = now.Add(time.Hour), Merge(in.Prior, &st)
		if again := Status(in); !equality.Semantic.DeepEqual(again.Conditions, st.Conditions) {
			t.Errorf("%s: later %+v", name, again.Conditions)
		}
	}
}

func TestConditionsKeepTheirTime(t *testing.T) {
	in := given(sandbox("s", 0, true), has("a", 0, "s", Running))
	first := Status(in)
	in.Now = now.Add(time.Hour)
	in.Prior = first
	if again := Status(in); !equality.Semantic.DeepEqual(first, again) {
		t.Errorf("the status changed with nothing but time:\n%v\n%v", first, again)
	}
	in.Observed.Containers[0].State = Exited
	changed := Status(in)
	for _, c := range changed.Conditions {
		at := c.LastTransitionTime.Time
		if flipped := c.Type == v1.PodReady || c.Type == v1.ContainersReady; flipped != at.Equal(in.Now) {
			t.Errorf("%s is %s since %s", c.Type, c.Status, at)
		}
	}
}

func TestReadinessGates(t *testing.T) {
	in := given(sandbox("s", 0, true), has("a", 0, "s", Running))
	in.Pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/open"}}
	if got := sayStatus(Status(in)); strings.HasSuffix(got, " Ready") {
		t.Error("ready before its gate is open:", got)
	}
	in.Prior.Conditions = []v1.PodCondition{{Type: "example.com/open", Status: v1.ConditionTrue}}
	if got := sayStatus(Status(in)); !strings.HasSuffix(got, " Ready") {
		t.Error("not ready though its gate is open:", got)
	}
}

func TestDevicesNotReadyNamesTheResource(t *testing.T) {
	in := given(wantsDevice(false))
	in.Failures[Key{Verb: GrantDevices}] = Failure{Reason: ReasonDevicesNotReady, Message: "example.com/widget is not ready", At: now, Count: 1}
	st := Status(in)
	if !strings.Contains(st.Message, "example.com/widget") || !strings.Contains(st.ContainerStatuses[0].State.Waiting.Message, "example.com/widget") {
		t.Errorf("status %q, container %v", st.Message, st.ContainerStatuses[0].State.Waiting)
	}
}

func TestHostNetwork(t *testing.T) {
	in := given(sandbox("s", 0, true), has("a", 0, "s", Running))
	in.Pod.Spec.HostNetwork, in.Observed.Sandboxes[0].IPs = true, nil
	if st := Status(in); st.PodIP != "10.0.0.1" || !strings.Contains(sayStatus(st), "PodReadyToStartContainers") {
		t.Errorf("%s %s", st.PodIP, sayStatus(st))
	}
}

// TestMerge: what the API server says others have written wins, the rest is the agent's.
func TestMerge(t *testing.T) {
	own := v1.PodStatus{
		Phase: v1.PodRunning, PodIP: "1.2.3.4",
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}, {Type: "x", Status: v1.ConditionFalse}},
	}
	api := v1.PodStatus{
		Phase: v1.PodPending, QOSClass: v1.PodQOSGuaranteed,
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse}, {Type: "x", Status: v1.ConditionTrue}, {Type: "y", Status: v1.ConditionTrue}},
	}
	got := Merge(api, &own)
	want := v1.PodStatus{
		Phase: v1.PodRunning, PodIP: "1.2.3.4", QOSClass: v1.PodQOSGuaranteed,
		Conditions: []v1.PodCondition{{Type: "x", Status: v1.ConditionTrue}, {Type: "y", Status: v1.ConditionTrue}, {Type: v1.PodReady, Status: v1.ConditionTrue}},
	}
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	api.Phase = v1.PodFailed
	if got := Merge(api, &own); got.Phase != v1.PodFailed {
		t.Errorf("a final phase of the API server was replaced by %s", got.Phase)
	}
}

// TestVolumeMounts: the status says what came of the mounts, not what was asked for.
func TestVolumeMounts(t *testing.T) {
	maybe := v1.RecursiveReadOnlyIfPossible
	mounts := []v1.VolumeMount{
		{Name: "rw", MountPath: "/rw"}, {Name: "ro", MountPath: "/ro", ReadOnly: true},
		{Name: "deep", MountPath: "/deep", ReadOnly: true, RecursiveReadOnly: &maybe}, {Name: "shown", MountPath: "/shown"},
	}
	in := given(sandbox("s", 0, true), has("a", 0, "s", Running, func(c *Container) {
		c.Recursive, c.VolumeImages = []string{"/deep"}, map[string]string{"shown": "example.com/app@sha256:1"}
	}))
	in.Pod.Spec.Containers[0].VolumeMounts = mounts
	disabled, enabled := v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyEnabled
	want := []v1.VolumeMountStatus{
		{Name: "rw", MountPath: "/rw"}, {Name: "ro", MountPath: "/ro", ReadOnly: true, RecursiveReadOnly: &disabled},
		{Name: "deep", MountPath: "/deep", ReadOnly: true, RecursiveReadOnly: &enabled},
		{Name: "shown", MountPath: "/shown", VolumeStatus: &v1.VolumeStatus{Image: &v1.ImageVolumeStatus{ImageRef: "example.com/app@sha256:1"}}},
	}
	if got := Status(in).ContainerStatuses[0].VolumeMounts; !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
