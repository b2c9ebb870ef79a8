package rbac

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// RulesOf are the rules of the role that a binding in a namespace names; "" is a cluster role binding. It is a NotFound where there is none.
func (p *Policy) RulesOf(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.rulesOf(ref, namespace)
}

// Covers is nil when who has all the rights of rules in a namespace, by cluster roles everywhere ("" is only these). Else the error names those that are
// missing, in upstream's form.
func (p *Policy) Covers(who user.Info, namespace string, rules []rbacv1.PolicyRule) error {
	has, err := p.rulesFor(who, namespace)
	covered, missing := validation.Covers(has, rules)
	if covered {
		return nil
	}
	var lines []string
	for _, rule := range compact(missing) {
		lines = append(lines, line(rule))
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	unresolved := ""
	if err != nil {
		unresolved = fmt.Sprintf("; resolution errors: [%v]", err)
	}
	return fmt.Errorf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s%s",
		who.GetName(), who.GetGroups(), strings.Join(lines, "\n"), unresolved)
}

// compact puts the verbs of a resource together. The rules are broken down: each has one verb, and one resource with at most one name, or one path.
func compact(rules []rbacv1.PolicyRule) (all []rbacv1.PolicyRule) {
	at := map[string]int{}
	for _, r := range rules {
		without := r
		without.Verbs = nil
		what := line(without)
		i, known := at[what]
		if !known || len(r.NonResourceURLs) > 0 {
			at[what] = len(all)
			all = append(all, *r.DeepCopy())
			continue
		}
		all[i].Verbs = append(all[i].Verbs, r.Verbs...)
	}
	return all
}

// line is a rule as the errors show it: {APIGroups:[""], Resources:["pods"], Verbs:["get"]}.
func line(r rbacv1.PolicyRule) string {
	var parts []string
	for _, part := range []struct {
		name   string
		values []string
	}{
		{"APIGroups", r.APIGroups}, {"Resources", r.Resources}, {"NonResourceURLs", r.NonResourceURLs}, {"ResourceNames", r.ResourceNames}, {"Verbs", r.Verbs},
	} {
		if len(part.values) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", part.name, part.values))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
