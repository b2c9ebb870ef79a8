package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"
)

// The selectors of a new pod get the values of its labels; those that are not there stay away.
func TestLabelKeys(t *testing.T) {
	read := func(text string) *corev1.Pod {
		pod := validPod()
		if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
			t.Fatal(err)
		}
		return pod
	}
	const head = `{metadata: {labels: {app: web, version: "2", tenant: blue}}, spec: {affinity: `
	const term = `matchLabelKeys: [version, none], mismatchLabelKeys: [tenant, absent], topologyKey: zone`
	given := read(head + `{podAffinity: {
		requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchLabels: {app: web}}, ` + term + `}, {topologyKey: zone, ` + `matchLabelKeys: [version]}],
		preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {labelSelector: {}, ` + term + `}}]},
	podAntiAffinity: {
		requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchExpressions: [{key: app, operator: Exists}]}, ` + term + `}],
		preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {labelSelector: {}, topologyKey: zone}}]}},
	topologySpreadConstraints: [{labelSelector: {matchLabels: {app: web}}, matchLabelKeys: [none, version]}, {matchLabelKeys: [version]}]}}`)
	const added = `{key: version, operator: In, values: ["2"]}, {key: tenant, operator: NotIn, values: [blue]}`
	want := read(head + `{podAffinity: {
		requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchLabels: {app: web}, matchExpressions: [` + added + `]}, ` + term + `}, {topologyKey: zone, matchLabelKeys: [version]}],
		preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {labelSelector: {matchExpressions: [` + added + `]}, ` + term + `}}]},
	podAntiAffinity: {
		requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchExpressions: [{key: app, operator: Exists}, ` + added + `]}, ` + term + `}],
		preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {labelSelector: {}, topologyKey: zone}}]}},
	topologySpreadConstraints: [{labelSelector: {matchLabels: {app: web}, matchExpressions: [{key: version, operator: In, values: ["2"]}]}, matchLabelKeys: [none, version]}, {matchLabelKeys: [version]}]}}`)
	(strategy{}).PrepareForCreate(t.Context(), given)
	if !apiequality.Semantic.DeepEqual(given.Spec, want.Spec) {
		t.Errorf("%+v, %+v\nwant %+v, %+v", given.Spec.Affinity, given.Spec.TopologySpreadConstraints, want.Spec.Affinity, want.Spec.TopologySpreadConstraints)
	}
	before := given.DeepCopy()
	(strategy{}).PrepareForUpdate(t.Context(), given, before)
	if !apiequality.Semantic.DeepEqual(given.Spec, before.Spec) {
		t.Error("a change of the pod adds to its selectors again")
	}
}
