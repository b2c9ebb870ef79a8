package bootstrap

import (
	"reflect"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"monopod.dev/monopod/internal/apiserver/pki"
	"monopod.dev/monopod/internal/controllers/catalog"
)

// own are the bindings of Monopod's own controllers, which all have one credential: the roles of those parts of Kubernetes in whose place they stand, and
// what they need besides, as their catalog says.
func (p *Policy) own() {
	ours := userNamed(pki.ControllersUser)
	const prefix = "monopod:"
	bind := func(name, role string) {
		p.ClusterRoleBindings = append(p.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metadata("", name, nil), Subjects: []rbacv1.Subject{ours},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		})
	}
	var rules []rbacv1.PolicyRule
	for _, c := range catalog.All() {
		for _, role := range c.Roles {
			bind(prefix+role, role)
		}
		for _, r := range c.Rights {
			rule := rbacv1.PolicyRule{Verbs: strings.Fields(r.Verbs), APIGroups: []string{r.Group}, Resources: strings.Fields(r.Resources)}
			if !slices.ContainsFunc(rules, func(had rbacv1.PolicyRule) bool { return reflect.DeepEqual(had, rule) }) {
				rules = append(rules, rule) // several may need the same
			}
		}
	}
	const more = prefix + "controllers"
	p.clusterRole(more, nil, rules...)
	bind(more, more)
	p.provisioner(prefix, bind)
	p.signer(prefix, bind)
}

// provisioner are the rights of the node's own provisioner of volumes, which has the credential of the controllers: those that provisioners have by custom, and
// those of a resizer, to make the default class, to say in classes what holds their volumes' sizes, and to make claims with data in them when an administrator says so.
func (p *Policy) provisioner(prefix string, bind func(name, role string)) {
	const custom = "system:persistent-volume-provisioner"
	bind(prefix+custom, custom)
	name := prefix + "storage"
	p.clusterRole(name, nil, on("update", core, "persistentvolumes persistentvolumeclaims/status"), on("patch", core, "persistentvolumes"), on("create patch", storage, "storageclasses"),
		on("get create", core, "configmaps"), on("get", core, "nodes namespaces"), on("create", core, "persistentvolumeclaims"), on("list", core, "pods"))
	bind(name, name)
}

// signer is the right to be the signer of pods' certificates that every node has.
func (p *Policy) signer(prefix string, bind func(name, role string)) {
	name := prefix + "pod-identity"
	p.clusterRole(name, nil, named("sign attest", certificates, "signers", "monopod.dev/pod-identity"))
	bind(name, name)
}
