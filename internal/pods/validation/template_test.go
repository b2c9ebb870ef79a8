package validation

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods/defaults"
)

// A template is told of by where it stands, and what only a pod has is not asked of it.
func TestTemplate(t *testing.T) {
	const at = "spec.template."
	for name, tc := range map[string]struct {
		change func(*corev1.PodTemplateSpec)
		want   []string
	}{
		"valid":      {func(*corev1.PodTemplateSpec) {}, nil},
		"label":      {func(p *corev1.PodTemplateSpec) { p.Labels = map[string]string{"app": "a b"} }, []string{at + "labels: FieldValueInvalid"}},
		"annotation": {func(p *corev1.PodTemplateSpec) { p.Annotations = map[string]string{"a b": ""} }, []string{at + "annotations: FieldValueInvalid"}},
		"mirrors": {func(p *corev1.PodTemplateSpec) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		}, []string{at + "annotations[kubernetes.io/config.mirror]: FieldValueInvalid"}},
		"container name": {func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Name = "A" }, []string{at + "spec.containers[0].name: FieldValueInvalid"}},
		"refused field":  {func(p *corev1.PodTemplateSpec) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{} }, []string{at + "spec.schedulingGroup: FieldValueForbidden"}},
		"gate":           {func(p *corev1.PodTemplateSpec) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a b"}} }, []string{at + "spec.schedulingGates[0]: FieldValueInvalid"}},
		"probe": {func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers[0].LivenessProbe = &corev1.Probe{SuccessThreshold: 1}
		}, []string{at + "spec.containers[0].livenessProbe: FieldValueRequired"}},
		"refused value": {func(p *corev1.PodTemplateSpec) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }, []string{at + "spec.os.name: FieldValueForbidden"}},
		"users of its own on the host's network": {func(p *corev1.PodTemplateSpec) {
			p.Spec.HostUsers, p.Spec.HostNetwork, p.Spec.Containers[0].Ports = new(false), true, nil
		}, []string{at + "spec.hostNetwork: FieldValueForbidden"}},
		"ephemeral container": {func(p *corev1.PodTemplateSpec) {
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Image: "i"}}}
		}, []string{at + "spec.ephemeralContainers: FieldValueForbidden"}},
		"blanks around an image": {func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = " " }, nil},
		"no image":               {func(p *corev1.PodTemplateSpec) { p.Spec.InitContainers[0].Image = "" }, []string{at + "spec.initContainers[0].image: FieldValueRequired"}},
		"ports of the host's network": {func(p *corev1.PodTemplateSpec) {
			p.Spec.HostNetwork, p.Spec.Containers[0].Ports[0].HostPort = true, 0
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := validPod()
			template := &corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
			template.Spec.SecurityContext = nil // sysctls of the network do not go with the host's
			defaults.Template(template)
			tc.change(template)
			errs := Template(template, field.NewPath("spec", "template"))
			if got := summary(errs); !slices.Equal(got, tc.want) {
				t.Errorf("errors %v, want %v", errs, tc.want)
			}
		})
	}
}

func BenchmarkSpec(b *testing.B) {
	pod := validPod()
	for b.Loop() {
		if errs := Spec(&pod.Spec, field.NewPath("spec")); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}
