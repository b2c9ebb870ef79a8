package pods

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// RestartRule is the first of a container's restart rules (KEP-5307) that is about an exit code; nil: none is.
func RestartRule(c *v1.Container, code int32) *v1.ContainerRestartRule {
	for i := range c.RestartPolicyRules {
		r := &c.RestartPolicyRules[i]
		if r.ExitCodes == nil {
			continue
		}
		among := slices.Contains(r.ExitCodes.Values, code)
		switch r.ExitCodes.Operator {
		case v1.ContainerRestartRuleOnExitCodesOpIn:
			if among {
				return r
			}
		case v1.ContainerRestartRuleOnExitCodesOpNotIn:
			if !among {
				return r
			}
		}
	}
	return nil
}

// RestartPolicy is what is done when a container of a pod ends with a code, whatever its role: by its own rules, else by its own policy, else by that
// of the pod.
func RestartPolicy(spec *v1.PodSpec, c *v1.Container, code int32) v1.RestartPolicy {
	switch {
	case c.RestartPolicy == nil: // then it has no rules either
		return spec.RestartPolicy
	case RestartRule(c, code) != nil: // both actions start it again
		return v1.RestartPolicyAlways
	default:
		return v1.RestartPolicy(*c.RestartPolicy)
	}
}

// Restarts says that a container of a pod is started again when it ends with a code. Of an init container that has done its work it says what the policy
// says, though there is no need to run it again.
func Restarts(spec *v1.PodSpec, c *v1.Container, code int32) bool {
	switch RestartPolicy(spec, c, code) {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return code != 0
	default:
		return true
	}
}

// MayRestartAll says that the end of some container of a pod may start all of them again, whatever their own policies say.
func MayRestartAll(spec *v1.PodSpec) bool {
	for _, c := range Containers(spec) {
		for i := range c.RestartPolicyRules {
			if c.RestartPolicyRules[i].Action == v1.ContainerRestartRuleActionRestartAllContainers {
				return true
			}
		}
	}
	return false
}
