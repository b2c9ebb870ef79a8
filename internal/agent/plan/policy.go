package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// restartPolicy is what is done when a container of a role ends with a code.
func restartPolicy(spec *v1.PodSpec, role pods.Role, c *v1.Container, code int32) v1.RestartPolicy {
	switch role {
	case pods.Sidecar:
		return v1.RestartPolicyAlways
	case pods.Ephemeral:
		return v1.RestartPolicyNever
	}
	policy := pods.RestartPolicy(spec, c, code)
	if role == pods.Init && policy == v1.RestartPolicyAlways && pods.RestartRule(c, code) == nil {
		return v1.RestartPolicyOnFailure // it has done its work when it succeeds
	}
	return policy
}

// asksForAll says that by a rule of the container all of the pod are started again when it ends with a code.
func asksForAll(c *v1.Container, code int32) bool {
	r := pods.RestartRule(c, code)
	return r != nil && r.Action == v1.ContainerRestartRuleActionRestartAllContainers
}

// renewed is when a container ended last whose end starts all containers again; zero: none has. The newest dead container of each name is kept, so this
// stays as it is until the next one.
func (in *Input) renewed() (at time.Time) {
	for role, c := range pods.Containers(&in.Pod.Spec) {
		if role == pods.Ephemeral || len(c.RestartPolicyRules) == 0 {
			continue
		}
		for _, o := range in.Observed.byName(c.Name) {
			if o.State == Exited && asksForAll(c, o.ExitCode) && o.FinishedAt.After(at) {
				at = o.FinishedAt
			}
		}
	}
	return at
}
