package validation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestSpread(t *testing.T) {
	const at = "spec.topologySpreadConstraints[0]"
	valid := corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector(map[string]string{"app": "web"})}
	anyway := valid
	anyway.WhenUnsatisfiable = corev1.ScheduleAnyway
	spread := func(constraints ...corev1.TopologySpreadConstraint) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { s.TopologySpreadConstraints = constraints }
	}
	with := func(change func(*corev1.TopologySpreadConstraint)) func(*corev1.PodSpec) {
		c := valid
		change(&c)
		return spread(c)
	}
	run(t, map[string]specCase{
		"valid": {spread(valid), nil},
		"both":  {spread(valid, anyway), nil},
		"all of it": {with(func(c *corev1.TopologySpreadConstraint) {
			c.MinDomains, c.NodeAffinityPolicy, c.NodeTaintsPolicy = new(int32(3)), new(corev1.NodeInclusionPolicyIgnore), new(corev1.NodeInclusionPolicyHonor)
			c.MatchLabelKeys = []string{"pod-template-hash"}
		}), nil},
		"nothing": {spread(corev1.TopologySpreadConstraint{}), []string{
			at + ".maxSkew: Invalid value: must be greater than zero", at + ".topologyKey: Required value: can not be empty", at + ".whenUnsatisfiable: Unsupported value: "}},
		"skew": {with(func(c *corev1.TopologySpreadConstraint) { c.MaxSkew = -1 }), []string{at + ".maxSkew: Invalid value: must be greater than zero"}},
		"when": {with(func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = "Maybe" }), []string{at + `.whenUnsatisfiable: Unsupported value: supported values: "DoNotSchedule", "ScheduleAnyway"`}},
		"twice": {spread(valid, anyway, valid, valid), []string{
			at + ".{topologyKey, whenUnsatisfiable}: Duplicate value: ", "spec.topologySpreadConstraints[2].{topologyKey, whenUnsatisfiable}: Duplicate value: "}},
		"no domains": {with(func(c *corev1.TopologySpreadConstraint) { c.MinDomains = new(int32) }), []string{at + ".minDomains: Invalid value: must be greater than zero"}},
		"domains of a wish": {func(s *corev1.PodSpec) {
			c := anyway
			c.MinDomains = new(int32(2))
			spread(c)(s)
		}, []string{at + ".minDomains: Invalid value: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"}},
		"policies": {with(func(c *corev1.TopologySpreadConstraint) {
			c.NodeAffinityPolicy, c.NodeTaintsPolicy = new(corev1.NodeInclusionPolicy("Maybe")), new(corev1.NodeInclusionPolicy(""))
		}), []string{at + `.nodeAffinityPolicy: Unsupported value: supported values: "Honor", "Ignore"`, at + `.nodeTaintsPolicy: Unsupported value: supported values: "Honor", "Ignore"`}},
		"selector":            {with(func(c *corev1.TopologySpreadConstraint) { c.LabelSelector = selector(nil, says("a", "In")) }), []string{at + ".labelSelector.matchExpressions[0].values: Required value: "}},
		"no selector":         {with(func(c *corev1.TopologySpreadConstraint) { c.LabelSelector = nil }), nil},
		"keys of no selector": {with(func(c *corev1.TopologySpreadConstraint) { c.LabelSelector, c.MatchLabelKeys = nil, []string{"a"} }), []string{at + ".matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"}},
		"bad key":             {with(func(c *corev1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{"a b"} }), []string{at + ".matchLabelKeys[0]: Invalid value: "}},
		"a key in the selector, too": {with(func(c *corev1.TopologySpreadConstraint) {
			c.LabelSelector, c.MatchLabelKeys = selector(map[string]string{"app": "web"}, says("app", "In", "web")), []string{"app"}
		}), []string{at + ".matchLabelKeys[0]: Invalid value: exists in both matchLabelKeys and labelSelector"}},
	})
}
