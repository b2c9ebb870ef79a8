package bootstrap

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"monopod.dev/monopod/internal/apiserver/registry/configmap"
	"monopod.dev/monopod/internal/apiserver/registry/cronjob"
	"monopod.dev/monopod/internal/apiserver/registry/daemonset"
	"monopod.dev/monopod/internal/apiserver/registry/deployment"
	"monopod.dev/monopod/internal/apiserver/registry/event"
	"monopod.dev/monopod/internal/apiserver/registry/horizontalpodautoscaler"
	"monopod.dev/monopod/internal/apiserver/registry/job"
	"monopod.dev/monopod/internal/apiserver/registry/lease"
	"monopod.dev/monopod/internal/apiserver/registry/namespace"
	"monopod.dev/monopod/internal/apiserver/registry/node"
	"monopod.dev/monopod/internal/apiserver/registry/pod"
	"monopod.dev/monopod/internal/apiserver/registry/poddisruptionbudget"
	"monopod.dev/monopod/internal/apiserver/registry/rbac"
	"monopod.dev/monopod/internal/apiserver/registry/replicaset"
	"monopod.dev/monopod/internal/apiserver/registry/replicationcontroller"
	"monopod.dev/monopod/internal/apiserver/registry/secret"
	"monopod.dev/monopod/internal/apiserver/registry/service"
	"monopod.dev/monopod/internal/apiserver/registry/serviceaccount"
	"monopod.dev/monopod/internal/apiserver/registry/statefulset"
	"monopod.dev/monopod/internal/apiserver/registry/storageclass"
	"monopod.dev/monopod/internal/apiserver/resource"
)

func served() (rights []resource.Right) {
	all := append(rbac.Resources(rbac.Guard{}), configmap.Resource(), event.Resource(), lease.Resource(), namespace.Resource(), node.Resource(),
		pod.Resource(nil), secret.Resource(), service.Resource(), service.ProxyTo(nil, nil), serviceaccount.Resource(), serviceaccount.Tokens(nil, serviceaccount.TokenConfig{}), deployment.Resource(), replicaset.Resource(), replicationcontroller.Resource(), statefulset.Resource(), daemonset.Resource(),
		job.Resource(), cronjob.Resource(), poddisruptionbudget.Resource(), horizontalpodautoscaler.Resource(), storageclass.Resource())
	for _, r := range all {
		rights = append(rights, r.Rights()...)
	}
	return rights
}

func TestPolicyIsValid(t *testing.T) {
	p := New(served())
	names := map[string]bool{}
	once := func(kind, name string) {
		if names[kind+name] {
			t.Errorf("two of %s %s", kind, name)
		}
		names[kind+name] = true
	}
	for _, r := range p.ClusterRoles {
		once("cluster role ", r.Name)
		if errs := rbac.ClusterRoles(rbac.Guard{}).Check(r); len(errs) > 0 {
			t.Errorf("%s: %v", r.Name, errs)
		}
	}
	for _, r := range p.Roles {
		once("role ", r.Namespace+r.Name)
		if errs := rbac.Roles(rbac.Guard{}).Check(r); len(errs) > 0 {
			t.Errorf("%s: %v", r.Name, errs)
		}
	}
	for _, b := range p.ClusterRoleBindings {
		once("cluster role binding ", b.Name)
		if errs := rbac.ClusterRoleBindings(rbac.Guard{}).Check(b); len(errs) > 0 || !names["cluster role "+b.RoleRef.Name] {
			t.Errorf("%s: %v", b.Name, errs)
		}
	}
	for _, b := range p.RoleBindings {
		once("role binding ", b.Namespace+b.Name)
		if errs := rbac.RoleBindings(rbac.Guard{}).Check(b); len(errs) > 0 || !names["role "+b.Namespace+b.RoleRef.Name] {
			t.Errorf("%s: %v", b.Name, errs)
		}
	}
	t.Logf("%d cluster roles, %d bindings of them, %d roles, %d bindings", len(p.ClusterRoles), len(p.ClusterRoleBindings), len(p.Roles), len(p.RoleBindings))
}

// What the three roles may do with pods, secrets and events is what upstream's may.
func TestUsersRoles(t *testing.T) {
	p := New(served())
	for role, want := range map[string]struct{ may, mayNot []string }{
		"view": {
			may: []string{"get pods", "watch pods/log", "list pods/status", "get configmaps", "list namespaces", "list events", "list events.k8s.io/events", "get namespaces/status",
				"list metrics.k8s.io/pods", "watch apps/deployments", "get apps/deployments/scale", "get apps/replicasets/status", "get replicationcontrollers/scale",
				"list apps/statefulsets", "get apps/statefulsets/scale", "get apps/daemonsets/status",
				"list batch/jobs", "get batch/cronjobs/status", "watch policy/poddisruptionbudgets", "get autoscaling/horizontalpodautoscalers/status"},
			mayNot: []string{"get secrets", "create pods", "create pods/exec", "get pods/exec", "get nodes", "update configmaps", "list roles", "impersonate serviceaccounts",
				"get coordination.k8s.io/leases", "delete namespaces", "update pods/status", "get services/proxy", "update apps/deployments", "patch apps/deployments/scale"},
		},
		"edit": {
			may: []string{"get pods", "list secrets", "patch secrets", "create pods", "deletecollection pods", "create pods/exec", "get pods/portforward",
				"create pods/attach", "create pods/eviction", "get services/proxy", "create services/proxy", "impersonate serviceaccounts", "create serviceaccounts/token", "update coordination.k8s.io/leases", "create events",
				"deletecollection apps/deployments", "patch apps/deployments/scale", "update apps/replicasets/scale", "update replicationcontrollers/scale", "create replicationcontrollers",
				"patch apps/statefulsets/scale", "delete apps/daemonsets",
				"create batch/jobs", "deletecollection batch/cronjobs", "create policy/poddisruptionbudgets", "patch autoscaling/horizontalpodautoscalers"},
			mayNot: []string{"list rbac.authorization.k8s.io/roles", "update pods/status", "patch pods/ephemeralcontainers", "get pods/ephemeralcontainers", "create pods/binding", "create namespaces", "update nodes",
				"update apps/deployments/status", "patch replicationcontrollers/status", "update apps/daemonsets/scale",
				"update batch/jobs/status", "patch policy/poddisruptionbudgets/status", "update autoscaling/horizontalpodautoscalers/status"},
		},
		"admin": {
			may: []string{"get pods", "patch secrets", "impersonate serviceaccounts", "create rbac.authorization.k8s.io/roles", "delete rbac.authorization.k8s.io/rolebindings"},
			mayNot: []string{"get rbac.authorization.k8s.io/clusterroles", "get storage.k8s.io/storageclasses", "create namespaces", "bind rbac.authorization.k8s.io/roles",
				"escalate rbac.authorization.k8s.io/roles"},
		},
	} {
		rules := p.ClusterRoles[slices.IndexFunc(p.ClusterRoles, func(r *rbacv1.ClusterRole) bool { return r.Name == role })].Rules
		for _, what := range want.may {
			if !allows(rules, what) {
				t.Errorf("%s may not %s", role, what)
			}
		}
		for _, what := range want.mayNot {
			if allows(rules, what) {
				t.Errorf("%s may %s", role, what)
			}
		}
	}
	if again := New(served()); !apiequality.Semantic.DeepEqual(again.ClusterRoles[0], p.ClusterRoles[0]) {
		t.Error("the policy is another one each time")
	}
}

// allows: "VERB [GROUP/]RESOURCE".
func allows(rules []rbacv1.PolicyRule, what string) bool {
	verb, resource, _ := strings.Cut(what, " ")
	group := ""
	if before, after, ok := strings.Cut(resource, "/"); ok && (strings.Contains(before, ".") || slices.Contains([]string{"apps", "autoscaling", "batch", "policy"}, before)) {
		group, resource = before, after
	}
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Verbs, verb) && slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource)
	})
}
