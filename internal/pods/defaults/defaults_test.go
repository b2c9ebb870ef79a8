package defaults

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
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
