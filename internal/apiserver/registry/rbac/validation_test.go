package rbac

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestValidation(t *testing.T) {
	rule := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}
	urls := rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	role := func(name string, rules ...rbacv1.PolicyRule) field.ErrorList {
		return Roles(Guard{}).Check(&rbacv1.Role{ObjectMeta: meta("ns", name), Rules: rules})
	}
	cluster := func(aggregation *rbacv1.AggregationRule, rules ...rbacv1.PolicyRule) field.ErrorList {
		return ClusterRoles(Guard{}).Check(&rbacv1.ClusterRole{ObjectMeta: meta("", "system:x"), Rules: rules, AggregationRule: aggregation})
	}
	binding := func(kind, name string, subjects ...rbacv1.Subject) field.ErrorList {
		b := &rbacv1.RoleBinding{ObjectMeta: meta("ns", "b"), RoleRef: rbacv1.RoleRef{Kind: kind, Name: name}, Subjects: subjects}
		RoleBindings(Guard{}).Default(b)
		return RoleBindings(Guard{}).Check(b)
	}
	clusterBinding := func(kind string, subjects ...rbacv1.Subject) field.ErrorList {
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: meta("", "b"), RoleRef: rbacv1.RoleRef{Kind: kind, Name: "r"}, Subjects: subjects}
		ClusterRoleBindings(Guard{}).Default(b)
		return ClusterRoleBindings(Guard{}).Check(b)
	}
	selectors := func(all ...metav1.LabelSelector) *rbacv1.AggregationRule {
		return &rbacv1.AggregationRule{ClusterRoleSelectors: all}
	}
	for name, tc := range map[string]struct {
		errs field.ErrorList
		want string // fields, "" for none
	}{
		"role":                               {role("system:node", rule), ""},
		"role without rules":                 {role("r"), ""},
		"name with a slash":                  {role("a/b", rule), "metadata.name"},
		"name that is a directory":           {role("..", rule), "metadata.name"},
		"rule without verbs":                 {role("r", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}}), "rules[0].verbs"},
		"rule without groups and resources":  {role("r", rule, rbacv1.PolicyRule{Verbs: []string{"get"}}), "rules[1].apiGroups rules[1].resources"},
		"paths in a namespace":               {role("r", urls), "rules[0].nonResourceURLs"},
		"cluster role":                       {cluster(nil, rule, urls), ""},
		"paths and resources":                {cluster(nil, rbacv1.PolicyRule{Verbs: []string{"get"}, Resources: []string{"pods"}, NonResourceURLs: []string{"/"}}), "rules[0].nonResourceURLs"},
		"aggregation":                        {cluster(selectors(metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}})), ""},
		"aggregation of nothing":             {cluster(selectors()), "aggregationRule.clusterRoleSelectors"},
		"aggregation by what is no label":    {cluster(selectors(metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}})), "aggregationRule.clusterRoleSelectors[0].matchLabels"},
		"binding":                            {binding("Role", "r", rbacv1.Subject{Kind: "User", Name: "joe@example.com"}, rbacv1.Subject{Kind: "ServiceAccount", Name: "sa"}), ""},
		"binding to a cluster role":          {binding("ClusterRole", "system:x", rbacv1.Subject{Kind: "Group", Name: "dev"}), ""},
		"binding to another kind":            {binding("User", "r"), "roleRef.kind"},
		"binding to no name":                 {binding("Role", ""), "roleRef.name"},
		"binding to a name with a slash":     {binding("Role", "a/b"), "roleRef.name"},
		"subject without a name":             {binding("Role", "r", rbacv1.Subject{Kind: "User"}), "subjects[0].name"},
		"subject of another kind":            {binding("Role", "r", rbacv1.Subject{Kind: "Node", Name: "n"}), "subjects[0].kind"},
		"user of another group":              {binding("Role", "r", rbacv1.Subject{Kind: "User", Name: "n", APIGroup: "apps"}), "subjects[0].apiGroup"},
		"service account of a group":         {binding("Role", "r", rbacv1.Subject{Kind: "ServiceAccount", Name: "n", APIGroup: rbacv1.GroupName}), "subjects[0].apiGroup"},
		"service account's name":             {binding("Role", "r", rbacv1.Subject{Kind: "ServiceAccount", Name: "A_B"}), "subjects[0].name"},
		"cluster binding":                    {clusterBinding("ClusterRole", rbacv1.Subject{Kind: "ServiceAccount", Namespace: "ns", Name: "sa"}), ""},
		"cluster binding to a role":          {clusterBinding("Role"), "roleRef.kind"},
		"service account without its place":  {clusterBinding("ClusterRole", rbacv1.Subject{Kind: "ServiceAccount", Name: "sa"}), "subjects[0].namespace"},
		"another group than of roles":        {validateRef(rbacv1.RoleRef{APIGroup: "apps", Kind: "Role", Name: "r"}, "Role"), "roleRef.apiGroup"},
		"another role for a binding":         {validateRoleBindingUpdate(bound("a", "Role"), bound("b", "Role")), "roleRef"},
		"other subjects for a binding":       {validateRoleBindingUpdate(bound("a", "Role"), bound("a", "Role")), ""},
		"another role for a cluster binding": {validateClusterRoleBindingUpdate(boundCluster("a"), boundCluster("b")), "roleRef"},
	} {
		t.Run(name, func(t *testing.T) {
			var fields []string
			for _, err := range tc.errs {
				fields = append(fields, err.Field)
			}
			if got := strings.Join(fields, " "); got != tc.want {
				t.Errorf("errors in %q (%v), want %q", got, tc.errs, tc.want)
			}
		})
	}
}

func bound(role, kind string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}}
}

func boundCluster(role string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}
}
