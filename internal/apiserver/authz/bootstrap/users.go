package bootstrap

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// users are the roles that people are given, and what everybody has.
func (p *Policy) users(rights []resource.Right) {
	p.clusterRole("cluster-admin", nil, on("*", everyGroup, "*"), rbacv1.PolicyRule{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}})
	p.bindCluster("cluster-admin", group(user.SystemPrivilegedGroup))

	p.clusterRole("system:discovery", nil, at("/livez /readyz /healthz /version /version/ /openapi /openapi/* /api /api/* /apis /apis/*"))
	p.bindCluster("system:discovery", group(user.AllAuthenticated))
	p.clusterRole("system:basic-user", nil,
		on("create", authorized, "selfsubjectaccessreviews selfsubjectrulesreviews"), on("create", authenticated, "selfsubjectreviews"))
	p.bindCluster("system:basic-user", group(user.AllAuthenticated))
	p.clusterRole("system:public-info-viewer", nil, at("/livez /readyz /healthz /version /version/"))
	p.bindCluster("system:public-info-viewer", group(user.AllAuthenticated), group(user.AllUnauthenticated))
	p.clusterRole("system:service-account-issuer-discovery", nil,
		at("/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/"))
	p.bindCluster("system:service-account-issuer-discovery", group(serviceaccount.AllServiceAccountsGroup))

	p.aggregated(rights)
}

const aggregateTo = "rbac.authorization.k8s.io/aggregate-to-"

// aggregated are the roles view, edit and admin. Each is made of the roles that are labelled for it: one with the rights that resources declare, the
// role below it, and whatever others label so.
//
// They are written with the rules that the controller clusterrole-aggregation-controller finds first of all, in its order (that of the names), so that they
// are complete before it runs. Later the controller alone says what is in them.
func (p *Policy) aggregated(rights []resource.Right) {
	add := func(name string, labels map[string]string, rules []rbacv1.PolicyRule) {
		p.clusterRole(name, labels, rules...).AggregationRule = &rbacv1.AggregationRule{
			ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{aggregateTo + name: "true"}}},
		}
	}
	part := func(name string, role resource.Role) []rbacv1.PolicyRule {
		rules := rulesOf(rights, role)
		p.clusterRole("system:aggregate-to-"+name, map[string]string{aggregateTo + name: "true"}, rules...)
		return rules
	}
	// Its name is that of metrics-server's.
	labels := map[string]string{aggregateTo + "view": "true", aggregateTo + "edit": "true", aggregateTo + "admin": "true"}
	metrics := []rbacv1.PolicyRule{on(read, "metrics.k8s.io", "pods nodes")}
	p.clusterRole("system:aggregated-metrics-reader", labels, metrics...)
	view := slices.Concat(part("view", resource.Viewer), metrics)
	edit := slices.Concat(part("edit", resource.Editor), metrics, view[:len(view)-len(metrics)])
	admin := slices.Concat(edit, part("admin", resource.Admin))
	add("view", map[string]string{aggregateTo + "edit": "true"}, view)
	add("edit", map[string]string{aggregateTo + "admin": "true"}, edit)
	add("admin", nil, admin)
}
