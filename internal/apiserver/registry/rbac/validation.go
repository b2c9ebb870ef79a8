package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateRole(role *rbacv1.Role) field.ErrorList { return validateRules(role.Rules, true) }

func validateClusterRole(role *rbacv1.ClusterRole) field.ErrorList {
	errs := validateRules(role.Rules, false)
	if role.AggregationRule == nil {
		return errs
	}
	at := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(role.AggregationRule.ClusterRoleSelectors) == 0 {
		errs = append(errs, field.Required(at, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	for i := range role.AggregationRule.ClusterRoleSelectors {
		errs = append(errs, metav1validation.ValidateLabelSelector(&role.AggregationRule.ClusterRoleSelectors[i],
			metav1validation.LabelSelectorValidationOptions{}, at.Index(i))...)
	}
	return errs
}

func validateRules(rules []rbacv1.PolicyRule, namespaced bool) (errs field.ErrorList) {
	for i, rule := range rules {
		at := field.NewPath("rules").Index(i)
		if len(rule.Verbs) == 0 {
			errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
		}
		if len(rule.NonResourceURLs) == 0 {
			if len(rule.APIGroups) == 0 {
				errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
			}
			if len(rule.Resources) == 0 {
				errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
			}
			continue
		}
		if namespaced {
			errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), rule.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
		}
		if len(rule.APIGroups)+len(rule.Resources)+len(rule.ResourceNames) > 0 {
			errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), rule.NonResourceURLs,
				"rules cannot apply to both regular resources and non-resource URLs"))
		}
	}
	return errs
}

func validateRoleBinding(b *rbacv1.RoleBinding) field.ErrorList {
	return append(validateRef(b.RoleRef, "Role", "ClusterRole"), validateSubjects(b.Subjects, true)...)
}

func validateClusterRoleBinding(b *rbacv1.ClusterRoleBinding) field.ErrorList {
	return append(validateRef(b.RoleRef, "ClusterRole"), validateSubjects(b.Subjects, false)...)
}

// The role of a binding does not change: who may write the subjects of a binding need not be who may give the role.

func validateRoleBindingUpdate(b, old *rbacv1.RoleBinding) field.ErrorList {
	return append(validateRoleBinding(b), apivalidation.ValidateImmutableField(b.RoleRef, old.RoleRef, field.NewPath("roleRef"))...)
}

func validateClusterRoleBindingUpdate(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
	return append(validateClusterRoleBinding(b), apivalidation.ValidateImmutableField(b.RoleRef, old.RoleRef, field.NewPath("roleRef"))...)
}

func validateRef(ref rbacv1.RoleRef, kinds ...string) (errs field.ErrorList) {
	at := field.NewPath("roleRef")
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), ref.APIGroup, []string{rbacv1.GroupName}))
	}
	errs = append(errs, oneOf(at.Child("kind"), ref.Kind, kinds...)...)
	if ref.Name == "" {
		return append(errs, field.Required(at.Child("name"), ""))
	}
	for _, msg := range content.IsPathSegmentName(ref.Name) {
		errs = append(errs, field.Invalid(at.Child("name"), ref.Name, msg))
	}
	return errs
}

func validateSubjects(subjects []rbacv1.Subject, namespaced bool) (errs field.ErrorList) {
	for i, s := range subjects {
		at := field.NewPath("subjects").Index(i)
		if s.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			if s.Name != "" {
				for _, msg := range apivalidation.ValidateServiceAccountName(s.Name, false) {
					errs = append(errs, field.Invalid(at.Child("name"), s.Name, msg))
				}
			}
			errs = append(errs, oneOf(at.Child("apiGroup"), s.APIGroup, "")...)
			if !namespaced && s.Namespace == "" {
				errs = append(errs, field.Required(at.Child("namespace"), ""))
			}
		case rbacv1.UserKind, rbacv1.GroupKind:
			errs = append(errs, oneOf(at.Child("apiGroup"), s.APIGroup, rbacv1.GroupName)...)
		default:
			errs = append(errs, oneOf(at.Child("kind"), s.Kind, rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind)...)
		}
	}
	return errs
}

func oneOf(at *field.Path, value string, legal ...string) field.ErrorList {
	for _, l := range legal {
		if value == l {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(at, value, legal)}
}
