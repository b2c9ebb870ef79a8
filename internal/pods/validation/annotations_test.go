package validation

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods"
)

const appArmor = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix

func TestAnnotations(t *testing.T) {
	for name, tc := range map[string]struct {
		key, value string
		want       string // the error; empty: none
	}{
		"any":                     {"example.com/a", "b", ""},
		"unconfined":              {appArmor + "web", "unconfined", ""},
		"the runtime's":           {appArmor + "init", "runtime/default", ""},
		"one of the node's":       {appArmor + "web", "localhost/p", ""},
		"another":                 {appArmor + "web", "p", `a[container.apparmor.security.beta.kubernetes.io/web]: Invalid value: "p": invalid AppArmor profile name: "p"`},
		"of no container":         {appArmor + "nobody", "unconfined", `a[container.apparmor.security.beta.kubernetes.io/nobody]: Invalid value: "nobody": container not found`},
		"a cost":                  {corev1.PodDeletionCost, "-7", ""},
		"a cost with a plus":      {corev1.PodDeletionCost, "+7", `a[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "+7": must be a 32bit integer`},
		"a cost that is too much": {corev1.PodDeletionCost, "2147483648", `a[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "2147483648": must be a 32bit integer`},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "init"}}, Containers: []corev1.Container{{Name: "web"}}}}
		errs := Annotations(map[string]string{tc.key: tc.value}, &pod.Spec, field.NewPath("a"))
		if tc.want == "" && len(errs) > 0 || tc.want != "" && (len(errs) != 1 || errs[0].Error() != tc.want) {
			t.Errorf("%s: %v, want %q", name, errs, tc.want)
		}
	}
}

// What annotations once did is told of, and where it was AppArmor's a new pod has the field.
func TestDeprecatedAnnotations(t *testing.T) {
	const at = "metadata.annotations["
	unconfined, ours := &corev1.AppArmorProfile{Type: "Unconfined"}, &corev1.AppArmorProfile{Type: "RuntimeDefault"}
	for name, tc := range map[string]struct {
		annotations map[string]string
		change      func(*corev1.PodSpec)
		profile     corev1.AppArmorProfileType // that of the container then
		told        []string                   // annotations of which creation tells
		template    []string                   // the warnings of a template
	}{
		"none":       {},
		"unconfined": {map[string]string{appArmor + "web": "unconfined"}, nil, "Unconfined", []string{appArmor + "web"}, []string{at + appArmor + `web]: deprecated since v1.30; use the "appArmorProfile" field instead`}},
		"beside the field": {map[string]string{appArmor + "web": "unconfined"}, func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{AppArmorProfile: ours}
		}, "RuntimeDefault", nil, nil},
		"as the pod says": {map[string]string{appArmor + "web": "unconfined"}, func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: unconfined}
		}, "", nil, nil},
		"unlike the pod": {map[string]string{appArmor + "web": "localhost/p"}, func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: unconfined}
		}, "Localhost", []string{appArmor + "web"}, nil},
		"unreadable":           {map[string]string{appArmor + "web": "localhost/"}, nil, "", []string{appArmor + "web"}, []string{at + appArmor + `web]: deprecated since v1.30; use the "appArmorProfile" field instead`}},
		"the pod's seccomp":    {map[string]string{seccompOfPod: "unconfined"}, nil, "", nil, []string{at + seccompOfPod + `]: non-functional in v1.27+; use the "seccompProfile" field instead`}},
		"the containers":       {map[string]string{seccompOfContainer + "web": "unconfined"}, nil, "", nil, []string{at + seccompOfContainer + `web]: non-functional in v1.27+; use the "seccompProfile" field instead`}},
		"a critical pod":       {map[string]string{"scheduler.alpha.kubernetes.io/critical-pod": ""}, nil, "", nil, []string{at + `scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; use the "priorityClassName" field instead`}},
		"sysctls":              {map[string]string{"security.alpha.kubernetes.io/sysctls": "a=b"}, nil, "", nil, []string{at + `security.alpha.kubernetes.io/sysctls]: non-functional in v1.11+; use the "sysctls" field instead`}},
		"another of container": {map[string]string{seccompOfContainer + "nobody": "unconfined"}, nil, "", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}}}
			pod.Annotations = tc.annotations
			if tc.change != nil {
				tc.change(&pod.Spec)
			}
			template := &corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: *pod.Spec.DeepCopy()}
			if got := TemplateWarnings(template, nil); !slices.Equal(got, tc.template) {
				t.Errorf("a template: %q, want %q", got, tc.template)
			}
			if got := pods.AdoptAppArmor(pod, UsableAppArmor); !slices.Equal(got, tc.told) {
				t.Errorf("told %q, want %q", got, tc.told)
			}
			got := corev1.AppArmorProfileType("")
			if sc := pod.Spec.Containers[0].SecurityContext; sc != nil {
				got = sc.AppArmorProfile.Type
			}
			if got != tc.profile {
				t.Errorf("the profile is %q, want %q", got, tc.profile)
			}
		})
	}
}
