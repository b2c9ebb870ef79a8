package bootstrap

import (
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// Policy is a set of roles and bindings.
type Policy struct {
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
}

// New makes the roles and bindings of a cluster whose resources have the given rights.
func New(rights []resource.Right) Policy {
	var p Policy
	p.users(rights)
	p.system()
	p.controllers()
	p.namespaced()
	p.own()
	return p
}

// bootstrapLabel marks what this package makes.
const bootstrapLabel, bootstrapValue = "kubernetes.io/bootstrapping", "rbac-defaults"

func metadata(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	all := map[string]string{bootstrapLabel: bootstrapValue}
	maps.Copy(all, labels)
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: all,
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}
}

func (p *Policy) clusterRole(name string, labels map[string]string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	role := &rbacv1.ClusterRole{ObjectMeta: metadata("", name, labels), Rules: rules}
	p.ClusterRoles = append(p.ClusterRoles, role)
	return role
}

// bindCluster gives a cluster role to subjects, by a binding of its name.
func (p *Policy) bindCluster(role string, subjects ...rbacv1.Subject) {
	p.ClusterRoleBindings = append(p.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metadata("", role, nil), Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	})
}

func (p *Policy) role(namespace, name string, rules ...rbacv1.PolicyRule) {
	p.Roles = append(p.Roles, &rbacv1.Role{ObjectMeta: metadata(namespace, name, nil), Rules: rules})
}

func (p *Policy) bind(namespace, name, role string, subjects ...rbacv1.Subject) {
	p.RoleBindings = append(p.RoleBindings, &rbacv1.RoleBinding{
		ObjectMeta: metadata(namespace, name, nil), Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
	})
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}

func userNamed(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

// account is a service account of kube-system.
func account(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: name}
}

// The groups that rules name. A rule is for one or more of them, separated by spaces as all lists here are.
const (
	core          = "-"
	everyGroup    = "*"
	authenticated = "authentication.k8s.io"
	authorized    = "authorization.k8s.io"
	certificates  = "certificates.k8s.io"
	coordination  = "coordination.k8s.io"
	discovery     = "discovery.k8s.io"
	events        = "events.k8s.io"
	storage       = "storage.k8s.io"
)

// The verbs that belong together.
const (
	read       = "get list watch"
	readUpdate = "get list watch update patch"
	readWrite  = "get list watch create update patch delete deletecollection"
)

// on lets verbs be done with resources of groups; core is the one without a name.
func on(verbs, groups, resources string) rbacv1.PolicyRule {
	names := strings.Fields(groups)
	for i := range names {
		if names[i] == core {
			names[i] = ""
		}
	}
	return rbacv1.PolicyRule{Verbs: strings.Fields(verbs), APIGroups: names, Resources: strings.Fields(resources)}
}

// named is on for the objects of some names only.
func named(verbs, group, resource string, names ...string) rbacv1.PolicyRule {
	rule := on(verbs, group, resource)
	rule.ResourceNames = names
	return rule
}

// at lets paths that are no resources be read.
func at(paths string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: strings.Fields(paths)}
}

// tell lets events be written.
func tell() rbacv1.PolicyRule { return on("create update patch", core+" "+events, "events") }

// rulesOf are the rights that resources give a role: a rule for each group and set of verbs.
func rulesOf(rights []resource.Right, role resource.Role) (rules []rbacv1.PolicyRule) {
	paths := map[[2]string][]string{}
	for _, r := range rights {
		if r.Role == role {
			what := [2]string{r.Group, strings.Join(r.Verbs, " ")}
			paths[what] = append(paths[what], r.Resource)
		}
	}
	// The order is the same at each start, so that what is stored is equal to what is expected.
	ordered := slices.SortedFunc(maps.Keys(paths), func(a, b [2]string) int { return strings.Compare(a[0]+" "+a[1], b[0]+" "+b[1]) })
	for _, what := range ordered {
		slices.Sort(paths[what])
		rules = append(rules, rbacv1.PolicyRule{
			Verbs: strings.Fields(what[1]), APIGroups: []string{what[0]}, Resources: slices.Compact(paths[what]),
		})
	}
	return rules
}
