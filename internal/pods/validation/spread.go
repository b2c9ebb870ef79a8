package validation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateSpread is about how a pod and those like it are to be spread.
func validateSpread(constraints []corev1.TopologySpreadConstraint, path *field.Path) (errs field.ErrorList) {
	for i := range constraints {
		c, at := &constraints[i], path.Index(i)
		errs = append(errs, above0(c.MaxSkew, at.Child("maxSkew"))...)
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
		}
		errs = append(errs, among(c.WhenUnsatisfiable, at.Child("whenUnsatisfiable"), corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
		for _, other := range constraints[i+1:] {
			if c.TopologyKey == other.TopologyKey && c.WhenUnsatisfiable == other.WhenUnsatisfiable {
				errs = append(errs, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%s, %s}", c.TopologyKey, c.WhenUnsatisfiable)))
				break
			}
		}
		if c.MinDomains != nil {
			errs = append(errs, above0(*c.MinDomains, at.Child("minDomains"))...)
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				errs = append(errs, field.Invalid(at.Child("minDomains"), *c.MinDomains,
					fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, c.WhenUnsatisfiable)))
			}
		}
		errs = append(errs, validateNodesPolicy(c.NodeAffinityPolicy, at.Child("nodeAffinityPolicy"))...)
		errs = append(errs, validateNodesPolicy(c.NodeTaintsPolicy, at.Child("nodeTaintsPolicy"))...)
		errs = append(errs, validateLabelKeys(c.MatchLabelKeys, nil, c.LabelSelector, at)...)
		errs = append(errs, validateSelector(c.LabelSelector, at.Child("labelSelector"))...)
	}
	return errs
}

func above0(n int32, at *field.Path) field.ErrorList {
	if n > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, n, "must be greater than zero")}
}

func validateNodesPolicy(policy *corev1.NodeInclusionPolicy, at *field.Path) field.ErrorList {
	if policy == nil {
		return nil
	}
	return among(*policy, at, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
}
