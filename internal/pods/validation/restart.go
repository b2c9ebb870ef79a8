package validation

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// How much there may be in the restart rules of a container.
const (
	maxRestartRules     = 20
	maxRestartExitCodes = 255
)

// validateRestart is about the restart policy that a container has beside that of its pod, and its rules (KEP-5307).
func validateRestart(c *corev1.Container, at *field.Path) (errs field.ErrorList) {
	policy, rules := at.Child("restartPolicy"), at.Child("restartPolicyRules")
	switch {
	case c.RestartPolicy == nil && len(c.RestartPolicyRules) > 0:
		errs = append(errs, field.Required(policy, "must specify restartPolicy when restart rules are used"))
	case c.RestartPolicy != nil:
		errs = append(errs, among(*c.RestartPolicy, policy,
			corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)...)
	}
	if n := len(c.RestartPolicyRules); n > maxRestartRules {
		errs = append(errs, field.TooMany(rules, n, maxRestartRules))
	}
	for i := range c.RestartPolicyRules {
		errs = append(errs, validateRestartRule(&c.RestartPolicyRules[i], rules.Index(i))...)
	}
	return errs
}

func validateRestartRule(rule *corev1.ContainerRestartRule, at *field.Path) field.ErrorList {
	errs := among(rule.Action, at.Child("action"), corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)
	at = at.Child("exitCodes")
	if rule.ExitCodes == nil {
		return append(errs, field.Required(at, "must be specified"))
	}
	errs = append(errs, among(rule.ExitCodes.Operator, at.Child("operator"),
		corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
	if n := len(rule.ExitCodes.Values); n > maxRestartExitCodes {
		errs = append(errs, field.TooMany(at.Child("values"), n, maxRestartExitCodes))
	}
	return errs
}
