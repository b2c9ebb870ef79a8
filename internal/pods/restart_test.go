package pods

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestRestarts(t *testing.T) {
	rule := func(op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) v1.ContainerRestartRule {
		return v1.ContainerRestartRule{Action: v1.ContainerRestartRuleActionRestart, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
	}
	const in, notIn = v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	never, onFailure := v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure
	for name, tc := range map[string]struct {
		pod   v1.RestartPolicy
		own   *v1.ContainerRestartPolicy
		rules []v1.ContainerRestartRule
		// yes are exit codes after which it runs again, no those after which it does not.
		yes, no []int32
	}{
		"always":                    {pod: v1.RestartPolicyAlways, yes: []int32{0, 1}},
		"no policy is always":       {yes: []int32{0, 1}},
		"never":                     {pod: v1.RestartPolicyNever, no: []int32{0, 1}},
		"on failure":                {pod: v1.RestartPolicyOnFailure, yes: []int32{1, 137}, no: []int32{0}},
		"its own before the pod's":  {pod: v1.RestartPolicyAlways, own: &never, no: []int32{0, 1}},
		"its own on failure":        {pod: v1.RestartPolicyNever, own: &onFailure, yes: []int32{1}, no: []int32{0}},
		"a rule before its own":     {own: &never, rules: []v1.ContainerRestartRule{rule(in, 42, 0)}, yes: []int32{0, 42}, no: []int32{1}},
		"all codes but":             {own: &never, rules: []v1.ContainerRestartRule{rule(notIn, 1, 2)}, yes: []int32{0, 3}, no: []int32{1, 2}},
		"the first rule that fits":  {own: &never, rules: []v1.ContainerRestartRule{rule(in, 7), rule(in, 8)}, yes: []int32{7, 8}, no: []int32{9}},
		"a rule about nothing":      {own: &never, rules: []v1.ContainerRestartRule{{}}, no: []int32{0, 1}},
		"rules need a policy":       {pod: v1.RestartPolicyNever, rules: []v1.ContainerRestartRule{rule(in, 1)}, no: []int32{1}},
		"an operator nobody knows":  {own: &never, rules: []v1.ContainerRestartRule{rule("Near", 1)}, no: []int32{1}},
		"all containers is a start": {own: &never, rules: []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers, ExitCodes: rule(in, 5).ExitCodes}}, yes: []int32{5}, no: []int32{0}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &v1.PodSpec{RestartPolicy: tc.pod, Containers: []v1.Container{{RestartPolicy: tc.own, RestartPolicyRules: tc.rules}}}
			for want, codes := range map[bool][]int32{true: tc.yes, false: tc.no} {
				for _, code := range codes {
					if got := Restarts(spec, &spec.Containers[0], code); got != want {
						t.Errorf("after %d: %t, want %t", code, got, want)
					}
				}
			}
		})
	}
}

func TestMayRestartAll(t *testing.T) {
	all := []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart}, {Action: v1.ContainerRestartRuleActionRestartAllContainers}}
	for want, spec := range map[bool]*v1.PodSpec{
		true:  {InitContainers: []v1.Container{{RestartPolicyRules: all}}, Containers: []v1.Container{{}}},
		false: {Containers: []v1.Container{{RestartPolicyRules: all[:1]}}},
	} {
		if got := MayRestartAll(spec); got != want {
			t.Errorf("%t, want %t", got, want)
		}
	}
}
