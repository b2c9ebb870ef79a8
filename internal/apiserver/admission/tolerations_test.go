package admission

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

func TestDefaultTolerationSeconds(t *testing.T) {
	const both = "node.kubernetes.io/not-ready:NoExecute:300 node.kubernetes.io/unreachable:NoExecute:300"
	seconds := int64(7)
	for name, c := range map[string]struct {
		has  []corev1.Toleration
		sub  string
		want string
	}{
		"none":            {nil, "", both},
		"of all":          {[]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, "", "::0"},
		"of all evicting": {[]corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}, "", ":NoExecute:0"},
		"another effect":  {[]corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}, "", ":NoSchedule:0 " + both},
		"its own time": {[]corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds}}, "",
			"node.kubernetes.io/not-ready:NoExecute:7 node.kubernetes.io/unreachable:NoExecute:300"},
		"a subresource": {nil, "status", ""},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: c.has}}
		a := admission.NewAttributesRecord(pod, nil, corev1.SchemeGroupVersion.WithKind("Pod"), "default", "p", corev1.SchemeGroupVersion.WithResource("pods"), c.sub,
			admission.Create, nil, false, nil)
		if err := (DefaultTolerationSeconds{}).Admit(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range pod.Spec.Tolerations {
			s := int64(0)
			if o.TolerationSeconds != nil {
				s = *o.TolerationSeconds
			}
			got = append(got, fmt.Sprintf("%s:%s:%d", o.Key, o.Effect, s))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %q, want %q", name, s, c.want)
		}
	}
}
