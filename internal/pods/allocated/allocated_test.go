package allocated

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

func amounts(cpu, memory string) v1.ResourceList {
	list := v1.ResourceList{}
	for name, q := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
		if q != "" {
			list[name] = resource.MustParse(q)
		}
	}
	return list
}

func say(list v1.ResourceList) string { return list.Cpu().String() + " " + list.Memory().String() }

// The sum is KEP-753's: each resource is what is needed at most at one time.
func TestRequests(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	asks := func(cpu, memory string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: amounts(cpu, memory)}
	}
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{
			{Resources: asks("100m", "4Gi")},                           // alone
			{Resources: asks("1", "1Gi"), RestartPolicy: &always},      // with all after it
			{Resources: asks("2", "1Gi")},                              // with the sidecar
			{Resources: asks("250m", "256Mi"), RestartPolicy: &always}, //
		},
		Containers:          []v1.Container{{Resources: asks("500m", "1Gi")}, {Resources: asks("250m", "")}},
		EphemeralContainers: []v1.EphemeralContainer{{}},
	}}
	if got, want := say(Of(pod).Requests()), "3 4Gi"; got != want {
		t.Errorf("%s, want %s: the init container with its sidecar, the first init container", got, want)
	}
	pod.Spec.Overhead = amounts("100m", "64Mi")
	if got, want := say(Of(pod).Requests()), "3100m 4160Mi"; got != want {
		t.Errorf("%s, want %s, the overhead too", got, want)
	}
	if got, want := say(Of(pod).WithoutSandbox().Requests), "3 4Gi"; got != want {
		t.Errorf("the containers: %s, want %s", got, want)
	}
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: amounts("4", "")}
	if got, want := say(Of(pod).Requests()), "4100m 4160Mi"; got != want {
		t.Errorf("%s, want %s: the pod's own cpu, the containers' memory", got, want)
	}
}

// What one container may use without a limit, the pod may.
func TestLimits(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	full := v1.Container{Resources: v1.ResourceRequirements{Limits: amounts("1", "1Gi")}}
	half := v1.Container{Resources: v1.ResourceRequirements{Limits: amounts("1", "")}}
	sidecar := half
	sidecar.RestartPolicy = &always
	for name, c := range map[string]struct {
		spec v1.PodSpec
		want string
	}{
		"all":                             {v1.PodSpec{Containers: []v1.Container{full, full}, EphemeralContainers: make([]v1.EphemeralContainer, 1)}, "2 2Gi"},
		"an app container without":        {v1.PodSpec{Containers: []v1.Container{full, half}}, "2 0"},
		"an init container without":       {v1.PodSpec{InitContainers: []v1.Container{half}, Containers: []v1.Container{full}}, "1 0"},
		"a sidecar without":               {v1.PodSpec{InitContainers: []v1.Container{sidecar}, Containers: []v1.Container{full}}, "2 0"},
		"the pod's own":                   {v1.PodSpec{Resources: &v1.ResourceRequirements{Limits: amounts("", "3Gi")}, Containers: []v1.Container{half, full}}, "2 3Gi"},
		"without the sandbox's overhead":  {v1.PodSpec{Overhead: amounts("1", "1Gi"), Containers: []v1.Container{full}}, "1 1Gi"},
		"an explicit nothing is no limit": {v1.PodSpec{Containers: []v1.Container{full, {Resources: v1.ResourceRequirements{Limits: amounts("0", "0")}}}}, "0 0"},
	} {
		if got := say(Of(&v1.Pod{Spec: c.spec}).WithoutSandbox().Limits); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The cgroup of a pod has room for its sandbox, too.
func TestWhole(t *testing.T) {
	full := v1.Container{Resources: v1.ResourceRequirements{Limits: amounts("1", "1Gi"), Requests: amounts("500m", "1Gi")}}
	pod := &v1.Pod{Spec: v1.PodSpec{Overhead: amounts("1", "1Gi"), Containers: []v1.Container{full, full}}}
	if r := Of(pod).Whole(); say(r.Requests) != "2 3Gi" || say(r.Limits) != "3 3Gi" {
		t.Errorf("%s, limited to %s", say(r.Requests), say(r.Limits))
	}
	pod.Spec.Containers[1].Resources.Limits = amounts("1", "")
	if r := Of(pod).Whole(); say(r.Limits) != "3 0" {
		t.Errorf("limited to %s, and a container has no limit of memory", say(r.Limits))
	}
}

// A container without a limit is told the pod's, or what the node has.
func TestBounds(t *testing.T) {
	node := amounts("4", "8Gi")
	pod := &v1.Pod{}
	if got := say(Of(pod).Bounds(node)); got != "4 8Gi" {
		t.Error(got)
	}
	pod.Spec.Resources = &v1.ResourceRequirements{Limits: amounts("", "1Gi")}
	if got := say(Of(pod).Bounds(node)); got != "4 1Gi" || say(node) != "4 8Gi" {
		t.Errorf("%s, and the node's are %s", got, say(node))
	}
}

// What a container has, has by itself, and may use.
func TestContainer(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init", Resources: v1.ResourceRequirements{Limits: amounts("1", "")}}},
		Containers:     []v1.Container{{Name: "app", Resources: v1.ResourceRequirements{Requests: amounts("1", "1Gi"), Limits: amounts("2", "0")}}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "look",
			Resources: v1.ResourceRequirements{Limits: amounts("9", "9Gi")}}}},
	}}
	limits := func(name, want string) {
		t.Helper()
		if got := say(Of(pod).Limits(name)); got != want {
			t.Errorf("%s is limited to %s, want %s", name, got, want)
		}
	}
	if has := Of(pod).Container("app"); say(has.Requests) != "1 1Gi" || say(has.Limits) != "2 0" {
		t.Errorf("%+v", has)
	}
	if has := Of(pod).Container("none"); has.Requests != nil || has.Limits != nil {
		t.Errorf("a container that is none has %+v", has)
	}
	limits("app", "2 0")
	limits("init", "1 0")
	limits("look", "0 0") // those that look at a pod have nothing
	pod.Spec.Resources = &v1.ResourceRequirements{Limits: amounts("3", "4Gi")}
	limits("app", "2 4Gi") // a limit of nothing is none
	limits("init", "1 4Gi")
	limits("look", "3 4Gi")
	if got := say(pod.Spec.Containers[0].Resources.Limits); got != "2 0" {
		t.Errorf("the specification says %s by now", got)
	}
}

// Who sees a pod from outside goes by the more of what it asks for and what its status says, as a scheduler does (KEP-1287).
func TestHeld(t *testing.T) {
	status := func(allocated, has v1.ResourceList) v1.ContainerStatus {
		return v1.ContainerStatus{Name: "app", AllocatedResources: allocated, Resources: &v1.ResourceRequirements{Requests: has}}
	}
	for name, c := range map[string]struct {
		asks     v1.ResourceList
		statuses []v1.ContainerStatus
		pending  string // the reason of the condition PodResizePending
		want     string
	}{
		"nobody has looked at it":   {amounts("1", "1Gi"), nil, "", "1100m 1Gi"},
		"it has what it asks for":   {amounts("1", "1Gi"), []v1.ContainerStatus{status(amounts("1", "1Gi"), amounts("1", "1Gi"))}, "", "1100m 1Gi"},
		"it asks for more":          {amounts("2", "1Gi"), []v1.ContainerStatus{status(amounts("1", "1Gi"), amounts("1", "1Gi"))}, "", "2100m 1Gi"},
		"for more than can be":      {amounts("2", "1Gi"), []v1.ContainerStatus{status(amounts("1", "1Gi"), amounts("1", "1Gi"))}, v1.PodReasonInfeasible, "1100m 1Gi"},
		"for less":                  {amounts("1", "1Gi"), []v1.ContainerStatus{status(amounts("2", "1Gi"), amounts("2", "1Gi"))}, "", "2100m 1Gi"},
		"for less, which was given": {amounts("1", "1Gi"), []v1.ContainerStatus{status(amounts("1", "1Gi"), amounts("2", "1Gi"))}, "", "2100m 1Gi"},
	} {
		pod := &v1.Pod{
			Spec:   v1.PodSpec{Overhead: amounts("100m", ""), Containers: []v1.Container{{Name: "app", Resources: v1.ResourceRequirements{Requests: c.asks}}}},
			Status: v1.PodStatus{ContainerStatuses: c.statuses},
		}
		if c.pending != "" {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: c.pending}}
		}
		if got := say(Held(pod)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A pod is made of what it was given, whatever it asks for by now; that costs nothing where it asks for just that.
func TestGiven(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	pod := &v1.Pod{Spec: v1.PodSpec{
		Resources:           &v1.ResourceRequirements{Requests: amounts("4", "")},
		Overhead:            amounts("100m", ""),
		InitContainers:      []v1.Container{{Name: "side", RestartPolicy: &always, Resources: v1.ResourceRequirements{Requests: amounts("1", "1Gi")}}},
		Containers:          []v1.Container{{Name: "app", Image: "old", Resources: v1.ResourceRequirements{Requests: amounts("1", ""), Limits: amounts("2", "2Gi")}}, {Name: "none"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "look"}}},
	}}
	given := Of(pod).Given()
	if given.In(pod) != pod || given.In(pod.DeepCopy()).Spec.Resources == nil {
		t.Error("a pod that asks for what it was given is another one")
	}
	later := pod.DeepCopy()
	later.Labels = map[string]string{"a": "b"}
	if given.In(later) != later {
		t.Error("other changes of a pod are none of what it has")
	}
	later.Spec.Resources.Requests = amounts("8", "")
	later.Spec.InitContainers[0].Resources.Requests = amounts("1", "8Gi")
	later.Spec.Containers[0].Image, later.Spec.Containers[0].Resources.Limits = "new", nil
	later.Spec.Containers[1].Resources = v1.ResourceRequirements{Requests: amounts("1", "")}
	asks := later.DeepCopy()
	has := given.In(later)
	if !apiequality.Semantic.DeepEqual(later, asks) {
		t.Error("the pod was changed that was given to look at")
	}
	if got, want := say(Of(has).Requests()), say(Of(pod).Requests()); got != want {
		t.Errorf("it has %s, and was given %s", got, want)
	}
	for _, name := range []string{"side", "app", "none"} {
		if got, want := Of(has).Container(name), Of(pod).Container(name); !apiequality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s has %+v, and was given %+v", name, got, want)
		}
	}
	if has.Spec.Containers[0].Image != "new" || has.Labels["a"] != "b" {
		t.Error("what is no resource is not the pod's")
	}
	later.Spec.Resources = nil
	if got := given.In(later).Spec.Resources; got == nil || say(got.Requests) != "4 0" {
		t.Errorf("the pod as a whole has %+v", got)
	}
	has.Spec.Resources.Requests["cpu"], has.Spec.InitContainers[0].Resources.Requests["cpu"] = resource.MustParse("64"), resource.MustParse("64")
	if got := given.In(later); say(got.Spec.Resources.Requests) != "4 0" || say(got.Spec.InitContainers[0].Resources.Requests) != "1 1Gi" {
		t.Error("what is kept was changed by somebody who was handed it out")
	}
}
