package defaults

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"monopod.dev/monopod/internal/pods"
)

func TestPullPolicyFor(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		"web":                                corev1.PullAlways,
		"web:latest":                         corev1.PullAlways,
		"registry.example:5000/web":          corev1.PullAlways,
		"registry.example:5000/a/web:latest": corev1.PullAlways,
		"web:latest@sha256:12":               corev1.PullAlways,
		"web:1":                              corev1.PullIfNotPresent,
		"registry.example:5000/web:1":        corev1.PullIfNotPresent,
		"web@sha256:12":                      corev1.PullIfNotPresent,
	} {
		if got := pullPolicyFor(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

func TestHostNetworkTakesTheHostsPorts(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true,
		Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}}}
	Pod(pod)
	if got := pod.Spec.Containers[0].Ports[0].HostPort; got != 80 {
		t.Errorf("host port %d, want 80", got)
	}
}

// What a pod has as a whole is completed by what its containers have.
func TestPodResources(t *testing.T) {
	for name, tc := range map[string]struct{ pod, containers, want string }{
		"nothing is said":                    {"{}", "{requests: {cpu: 1}}", "{}"},
		"requests alone stay":                {"{requests: {cpu: 2}}", "{requests: {cpu: 1, memory: 1Gi}}", "{requests: {cpu: 2}}"},
		"the limit is the request":           {"{limits: {cpu: 2}}", "{}", "{limits: {cpu: 2}, requests: {cpu: 2}}"},
		"unless containers request":          {"{limits: {cpu: 2}}", "{requests: {cpu: 1}}", "{limits: {cpu: 2}, requests: {cpu: 1}}"},
		"or are limited":                     {"{limits: {cpu: 2}}", "{limits: {cpu: 1, memory: 1Gi}}", "{limits: {cpu: 2}, requests: {cpu: 1, memory: 1Gi}}"},
		"what is said stays":                 {"{limits: {cpu: 2}, requests: {cpu: 1500m}}", "{requests: {cpu: 1}}", "{limits: {cpu: 2}, requests: {cpu: 1500m}}"},
		"devices are the containers'":        {"{limits: {cpu: 2}}", "{limits: {example.com/w: 1}}", "{limits: {cpu: 2}, requests: {cpu: 2}}"},
		"huge pages are those of containers": {"{limits: {cpu: 2}}", "{limits: {hugepages-2Mi: 4Mi}}", "{limits: {cpu: 2, hugepages-2Mi: 4Mi}, requests: {cpu: 2, hugepages-2Mi: 4Mi}}"},
		"unless the pod requests some": {"{limits: {cpu: 2}, requests: {hugepages-2Mi: 8Mi}}", "{limits: {hugepages-2Mi: 4Mi}}",
			"{limits: {cpu: 2}, requests: {cpu: 2, hugepages-2Mi: 8Mi}}"},
	} {
		var own, each, want corev1.ResourceRequirements
		for into, text := range map[*corev1.ResourceRequirements]string{&own: tc.pod, &each: tc.containers, &want: tc.want} {
			if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
				t.Fatal(err)
			}
		}
		pod := corev1.Pod{Spec: corev1.PodSpec{Resources: &own, Containers: []corev1.Container{{Resources: each}}}}
		Pod(&pod)
		if !apiequality.Semantic.DeepEqual(*pod.Spec.Resources, want) {
			t.Errorf("%s: %+v, want %+v", name, pod.Spec.Resources, want)
		}
	}
}

func TestQOSClass(t *testing.T) {
	for name, tc := range map[string]struct {
		resources []string // requests and limits of each container as YAML
		want      corev1.PodQOSClass
	}{
		"nothing asked":         {[]string{"{}"}, corev1.PodQOSBestEffort},
		"only a device":         {[]string{"{limits: {example.com/w: 1}}"}, corev1.PodQOSBestEffort},
		"both limited":          {[]string{"{limits: {cpu: 1, memory: 1Gi}}"}, corev1.PodQOSGuaranteed},
		"one limited":           {[]string{"{limits: {cpu: 1}}"}, corev1.PodQOSBurstable},
		"less requested":        {[]string{"{limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 500m}}"}, corev1.PodQOSBurstable},
		"one of two guaranteed": {[]string{"{limits: {cpu: 1, memory: 1Gi}}", "{}"}, corev1.PodQOSBurstable},
		"only a request":        {[]string{"{requests: {memory: 1Gi}}"}, corev1.PodQOSBurstable},
		"a request of nothing":  {[]string{"{requests: {memory: 0}}"}, corev1.PodQOSBestEffort},
		"both, both guaranteed": {[]string{"{limits: {cpu: 1, memory: 1}}", "{limits: {cpu: 2, memory: 2}}"}, corev1.PodQOSGuaranteed},
	} {
		t.Run(name, func(t *testing.T) {
			var pod corev1.Pod
			for _, text := range tc.resources {
				var c corev1.Container
				if err := yaml.UnmarshalStrict([]byte(text), &c.Resources); err != nil {
					t.Fatal(err)
				}
				pod.Spec.Containers = append(pod.Spec.Containers, c)
			}
			Pod(&pod)
			if got := pods.QOSClass(&pod.Spec); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func TestAKeyOfAFileIsNotOptional(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Env: []corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{}}}}}}}}
	Pod(pod)
	if got := pod.Spec.Containers[0].Env[0].ValueFrom.FileKeyRef.Optional; got == nil || *got {
		t.Errorf("optional: %v, want false", got)
	}
}
