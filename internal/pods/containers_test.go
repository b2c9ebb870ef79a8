package pods

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// every is a specification with a container of each role.
func every() *v1.PodSpec {
	always := v1.ContainerRestartPolicyAlways
	never := v1.ContainerRestartPolicyNever
	return &v1.PodSpec{
		InitContainers: []v1.Container{{Name: "first"}, {Name: "proxy", RestartPolicy: &always}, {Name: "second", RestartPolicy: &never}},
		Containers:     []v1.Container{{Name: "web"}, {Name: "log", RestartPolicy: &always}},
		EphemeralContainers: []v1.EphemeralContainer{
			{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "tools"}},
		},
	}
}

func TestContainers(t *testing.T) {
	spec := every()
	var got []string
	for role, c := range Containers(spec) {
		got = append(got, c.Name+" "+role.String())
	}
	want := []string{"first init", "proxy sidecar", "second init", "web app", "log app", "debug ephemeral"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for stop := range want {
		seen := 0
		for range Containers(spec) {
			if seen++; seen > stop {
				break
			}
		}
		if seen != stop+1 {
			t.Errorf("%d containers before the break, want %d", seen, stop+1)
		}
	}
	for _, c := range Containers(spec) {
		c.Image = "new"
	}
	if spec.InitContainers[1].Image != "new" || spec.EphemeralContainers[0].Image != "new" {
		t.Error("what is given out is a copy")
	}
}

func TestContainersAt(t *testing.T) {
	spec := every()
	var got []string
	for at, c := range ContainersAt(spec, field.NewPath("spec", "template", "spec")) {
		got = append(got, at.Path().Child("image").String()+" "+c.Name+" "+at.Role.String())
	}
	const prefix = "spec.template.spec."
	want := []string{
		prefix + "initContainers[0].image first init", prefix + "initContainers[1].image proxy sidecar", prefix + "initContainers[2].image second init",
		prefix + "containers[0].image web app", prefix + "containers[1].image log app", prefix + "ephemeralContainers[0].image debug ephemeral",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for range ContainersAt(spec, field.NewPath("spec")) {
		break // and nothing is given out after it
	}
}

func TestContainerNamed(t *testing.T) {
	for name, want := range map[string]Role{"second": Init, "proxy": Sidecar, "log": App, "debug": Ephemeral} {
		if role, c := ContainerNamed(every(), name); c == nil || c.Name != name || role != want {
			t.Errorf("%s: %v, %v", name, role, c)
		}
	}
	if _, c := ContainerNamed(every(), "nobody"); c != nil {
		t.Errorf("nobody: %v", c)
	}
}

// Ports of the host belong to what runs beside each other.
func TestHostPortsByRole(t *testing.T) {
	spec, port := every(), int32(1)
	for _, c := range Containers(spec) {
		c.Ports = []v1.ContainerPort{{HostPort: port}}
		port++
	}
	var got []int32
	for _, p := range HostPorts(spec) {
		got = append(got, p.Port)
	}
	if want := []int32{2, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("%d, want those of the sidecar and the app containers, %d", got, want)
	}
}

func TestQOS(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	full := v1.ResourceRequirements{Limits: list("1", "1Gi")}
	for name, c := range map[string]struct {
		pod  v1.Pod
		want v1.PodQOSClass
	}{
		"a limit without a request":  {v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: full}}}}, v1.PodQOSGuaranteed},
		"a request of nothing":       {v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: list("1", "1Gi"), Requests: list("0", "0")}}}}}, v1.PodQOSBurstable},
		"an init container counts":   {v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{}}, Containers: []v1.Container{{Resources: full}}}}, v1.PodQOSBurstable},
		"an ephemeral one does not":  {v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: full}}, EphemeralContainers: make([]v1.EphemeralContainer, 1)}}, v1.PodQOSGuaranteed},
		"the pod's own alone count":  {v1.Pod{Spec: v1.PodSpec{Resources: &full, Containers: []v1.Container{{}}}}, v1.PodQOSGuaranteed},
		"what the status says stays": {v1.Pod{Status: v1.PodStatus{QOSClass: v1.PodQOSBurstable}}, v1.PodQOSBurstable},
	} {
		if got := QOS(&c.pod); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
