package aggregate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Rules are what should be in an aggregated role: the rules of the roles among all that its selectors choose, in the order of the selectors and then of the
// roles' names, each once. The role itself is not among them.
func Rules(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	ordered := slices.SortedFunc(slices.Values(all), func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	rules, had := []rbacv1.PolicyRule{}, map[string]bool{}
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, fmt.Errorf("aggregationRule.clusterRoleSelectors[%d] of the cluster role %s: %w", i, role.Name, err)
		}
		for _, from := range ordered {
			if from.Name == role.Name || !selector.Matches(labels.Set(from.Labels)) {
				continue
			}
			for _, rule := range from.Rules {
				text, err := json.Marshal(rule) // which says nothing of what is empty
				if err != nil {
					return nil, fmt.Errorf("rules of the cluster role %s: %w", from.Name, err)
				}
				if !had[string(text)] {
					had[string(text)] = true
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}

// same says that rules are equal, in the same order.
func same(a, b []rbacv1.PolicyRule) bool {
	return len(a) == 0 && len(b) == 0 || apiequality.Semantic.DeepEqual(a, b)
}
