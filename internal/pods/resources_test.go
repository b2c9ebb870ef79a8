package pods

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	if got, want := say(Requests(pod)), "3 4Gi"; got != want {
		t.Errorf("%s, want %s: the init container with its sidecar, the first init container", got, want)
	}
	pod.Spec.Overhead = amounts("100m", "64Mi")
	if got, want := say(Requests(pod)), "3100m 4160Mi"; got != want {
		t.Errorf("%s, want %s, the overhead too", got, want)
	}
	if got, want := say(Resources(pod).Requests), "3 4Gi"; got != want {
		t.Errorf("the containers: %s, want %s", got, want)
	}
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: amounts("4", "")}
	if got, want := say(Requests(pod)), "4100m 4160Mi"; got != want {
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
		if got := say(Resources(&v1.Pod{Spec: c.spec}).Limits); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The cgroup of a pod has room for its sandbox, too.
func TestWhole(t *testing.T) {
	full := v1.Container{Resources: v1.ResourceRequirements{Limits: amounts("1", "1Gi"), Requests: amounts("500m", "1Gi")}}
	pod := &v1.Pod{Spec: v1.PodSpec{Overhead: amounts("1", "1Gi"), Containers: []v1.Container{full, full}}}
	if r := Whole(pod); say(r.Requests) != "2 3Gi" || say(r.Limits) != "3 3Gi" {
		t.Errorf("%s, limited to %s", say(r.Requests), say(r.Limits))
	}
	pod.Spec.Containers[1].Resources.Limits = amounts("1", "")
	if r := Whole(pod); say(r.Limits) != "3 0" {
		t.Errorf("limited to %s, and a container has no limit of memory", say(r.Limits))
	}
}

// A container without a limit is told the pod's, or what the node has.
func TestBounds(t *testing.T) {
	node := amounts("4", "8Gi")
	pod := &v1.Pod{}
	if got := say(Bounds(pod, node)); got != "4 8Gi" {
		t.Error(got)
	}
	pod.Spec.Resources = &v1.ResourceRequirements{Limits: amounts("", "1Gi")}
	if got := say(Bounds(pod, node)); got != "4 1Gi" || say(node) != "4 8Gi" {
		t.Errorf("%s, and the node's are %s", got, say(node))
	}
}

// What a pod says of itself in an annotation makes it nobody's but its user's.
func TestCritical(t *testing.T) {
	low, high := int32(0), int32(2_000_001_000)
	for name, c := range map[string]struct {
		pod           v1.Pod
		critical, own bool
	}{
		"any pod": {pod: v1.Pod{Spec: v1.PodSpec{Priority: &low}}},
		"one that says it is a file's": {pod: v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"kubernetes.io/config.source": "file"}},
			Spec: v1.PodSpec{PriorityClassName: "system-node-critical", Priority: &low}}},
		"one that says it is a mirror": {pod: v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1.MirrorPodAnnotationKey: "x"}}}},
		"the cluster's":                {pod: v1.Pod{Spec: v1.PodSpec{Priority: &high, PriorityClassName: "system-cluster-critical"}}, critical: true},
		"the node's":                   {pod: v1.Pod{Spec: v1.PodSpec{Priority: &high, PriorityClassName: "system-node-critical"}}, critical: true, own: true},
	} {
		if Critical(&c.pod) != c.critical || NodeCritical(&c.pod) != c.own {
			t.Errorf("%s: %t %t", name, Critical(&c.pod), NodeCritical(&c.pod))
		}
	}
}

func TestIsExtended(t *testing.T) {
	for name, want := range map[v1.ResourceName]bool{
		"cpu": false, "hugepages-2Mi": false, "kubernetes.io/a": false, "storage.kubernetes.io/a": false, "requests.example.com/a": false,
		"example.com/a": true, "notkubernetes.io/a": true,
	} {
		if IsExtended(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}
