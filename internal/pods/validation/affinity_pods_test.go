package validation

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func selector(labels map[string]string, e ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: labels, MatchExpressions: e}
}

func says(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
}

func TestAffinityToPods(t *testing.T) {
	const near, nearer = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]", "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
	const far, farther = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]", "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
	web := selector(map[string]string{"app": "web"})
	host := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: web}
	requires := func(term corev1.PodAffinityTerm) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
		}
	}
	shuns := func(term corev1.PodAffinityTerm) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
		}
	}
	weighs := func(near, far int32, term corev1.PodAffinityTerm) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{
				PodAffinity:     &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: near, PodAffinityTerm: term}}},
				PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: far, PodAffinityTerm: term}}},
			}
		}
	}
	with := func(change func(*corev1.PodAffinityTerm)) corev1.PodAffinityTerm {
		term := host
		change(&term)
		return term
	}
	keys := func(s *metav1.LabelSelector, match, mismatch []string) corev1.PodAffinityTerm {
		return with(func(t *corev1.PodAffinityTerm) {
			t.LabelSelector, t.MatchLabelKeys, t.MismatchLabelKeys = s, match, mismatch
		})
	}
	run(t, map[string]specCase{
		"nothing": {func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}
		}, nil},
		"near":                {requires(host), nil},
		"far":                 {shuns(host), nil},
		"weighed":             {weighs(1, 100, host), nil},
		"weights":             {weighs(0, 101, host), []string{nearer + ".weight: Invalid value: must be in the range 1-100", farther + ".weight: Invalid value: must be in the range 1-100"}},
		"no topology":         {shuns(corev1.PodAffinityTerm{LabelSelector: web}), []string{far + ".topologyKey: Required value: can not be empty", far + ".topologyKey: Invalid value: name part", far + ".topologyKey: Invalid value: name part"}},
		"topology":            {weighs(1, 1, corev1.PodAffinityTerm{TopologyKey: "a b"}), []string{nearer + ".podAffinityTerm.topologyKey: Invalid value: ", farther + ".podAffinityTerm.topologyKey: Invalid value: "}},
		"no selector":         {requires(corev1.PodAffinityTerm{TopologyKey: "zone"}), nil},
		"everybody":           {requires(corev1.PodAffinityTerm{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{}}), nil},
		"selector":            {requires(with(func(t *corev1.PodAffinityTerm) { t.LabelSelector = selector(nil, says("a", "Near")) })), []string{near + ".labelSelector.matchExpressions[0].operator: Invalid value: not a valid selector operator"}},
		"label":               {shuns(with(func(t *corev1.PodAffinityTerm) { t.LabelSelector = selector(map[string]string{"a": "b c"}) })), []string{far + ".labelSelector.matchLabels: Invalid value: "}},
		"namespaces":          {requires(with(func(t *corev1.PodAffinityTerm) { t.Namespaces = []string{"a", "b.c"} })), []string{near + ".namespaces[1]: Invalid value: "}},
		"namespace selector":  {requires(with(func(t *corev1.PodAffinityTerm) { t.NamespaceSelector = selector(nil, says("a", "In")) })), []string{near + ".namespaceSelector.matchExpressions[0].values: Required value: "}},
		"keys":                {requires(keys(web, []string{"version"}, []string{"tenant"})), nil},
		"keys of no selector": {requires(keys(nil, []string{"version"}, []string{"tenant"})), []string{near + ".matchLabelKeys: Forbidden: must not be specified when labelSelector is not set", near + ".mismatchLabelKeys: Forbidden: must not be specified when labelSelector is not set"}},
		"bad keys":            {requires(keys(web, []string{"a b"}, []string{"", "ok"})), []string{near + ".matchLabelKeys[0]: Invalid value: ", near + ".mismatchLabelKeys[0]: Invalid value: ", near + ".mismatchLabelKeys[0]: Invalid value: "}},
		"a key in both lists": {requires(keys(web, []string{"a", "b"}, []string{"b"})), []string{near + ".matchLabelKeys[1]: Invalid value: exists in both matchLabelKeys and mismatchLabelKeys"}},
		// What the pod's labels say of a key has been added to the selector before.
		"a key's own value":                        {requires(keys(selector(nil, says("version", "In", "1")), []string{"version"}, nil)), nil},
		"a key in the selector, too":               {requires(keys(selector(map[string]string{"version": "1"}, says("version", "In", "1")), []string{"version"}, nil)), []string{near + ".matchLabelKeys[0]: Invalid value: exists in both matchLabelKeys and labelSelector"}},
		"a key in an expression, too":              {requires(keys(selector(nil, says("version", "Exists"), says("version", "In", "1")), []string{"version"}, nil)), []string{near + ".matchLabelKeys[0]: Invalid value: exists in both matchLabelKeys and labelSelector"}},
		"a key that is not meant, in the selector": {requires(keys(selector(nil, says("tenant", "Exists"), says("tenant", "NotIn", "1")), nil, []string{"tenant"})), nil},
	})
}

// What selects nothing is told of, for it is hardly meant.
func TestNullSelectorsAreTold(t *testing.T) {
	pod := validPod()
	term := corev1.PodAffinityTerm{TopologyKey: "zone"}
	pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution:  []corev1.PodAffinityTerm{{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{}}, term},
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term}},
	}}
	pod.Spec.TopologySpreadConstraints = make([]corev1.TopologySpreadConstraint, 1)
	const null = ".labelSelector: a null labelSelector results in matching no pod"
	want := []string{
		"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[1]" + null,
		"spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm" + null,
		"spec.topologySpreadConstraints[0]" + null,
	}
	if got := Warnings(pod); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
