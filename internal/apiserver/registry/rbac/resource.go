package rbac

import (
	"reflect"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resources are the resources of the group.
func Resources(guard Guard) []resource.Resource {
	return []resource.Resource{Roles(guard), RoleBindings(guard), ClusterRoles(guard), ClusterRoleBindings(guard)}
}

// Roles is the resource roles.
func Roles(guard Guard) resource.Of[*rbacv1.Role, *rbacv1.RoleList] {
	return resource.Of[*rbacv1.Role, *rbacv1.RoleList]{
		Group:          rbacv1.GroupName,
		Plural:         "roles",
		Honours:        honouredRules(reflect.TypeFor[rbacv1.Role]()),
		Namespaced:     true,
		ReadBy:         resource.Admin,
		WrittenBy:      resource.Admin,
		Names:          validateName,
		Create:         validateRole,
		CreateOnUpdate: true,
		Columns:        roleColumns[*rbacv1.Role](),
		REST:           guarded(guard.role, "roles", guard.Policy),
		// The authorizer has the rules in memory already, and nobody else reads them often.
		NotCached: true,
	}
}

// ClusterRoles is the resource clusterroles.
func ClusterRoles(guard Guard) resource.Of[*rbacv1.ClusterRole, *rbacv1.ClusterRoleList] {
	return resource.Of[*rbacv1.ClusterRole, *rbacv1.ClusterRoleList]{
		Group:  rbacv1.GroupName,
		Plural: "clusterroles",
		Honours: apifields.Table{
			reflect.TypeFor[rbacv1.ClusterRole]():     apifields.All("Rules", "AggregationRule"),
			reflect.TypeFor[rbacv1.AggregationRule](): apifields.All("ClusterRoleSelectors"),
			reflect.TypeFor[rbacv1.PolicyRule]():      apifields.All("Verbs", "APIGroups", "Resources", "ResourceNames", "NonResourceURLs"),
		},
		Names:          validateName,
		Create:         validateClusterRole,
		CreateOnUpdate: true,
		Columns:        roleColumns[*rbacv1.ClusterRole](),
		REST:           guarded(guard.clusterRole, "clusterroles", guard.Policy),
		NotCached:      true,
	}
}

// RoleBindings is the resource rolebindings.
func RoleBindings(guard Guard) resource.Of[*rbacv1.RoleBinding, *rbacv1.RoleBindingList] {
	ref := func(b *rbacv1.RoleBinding) *rbacv1.RoleRef { return &b.RoleRef }
	subjects := func(b *rbacv1.RoleBinding) []rbacv1.Subject { return b.Subjects }
	return resource.Of[*rbacv1.RoleBinding, *rbacv1.RoleBindingList]{
		Group:          rbacv1.GroupName,
		Plural:         "rolebindings",
		Honours:        honouredBinding(reflect.TypeFor[rbacv1.RoleBinding]()),
		Namespaced:     true,
		ReadBy:         resource.Admin,
		WrittenBy:      resource.Admin,
		Default:        func(b *rbacv1.RoleBinding) { setDefaults(&b.RoleRef, b.Subjects) },
		Names:          validateName,
		Create:         validateRoleBinding,
		Update:         validateRoleBindingUpdate,
		CreateOnUpdate: true,
		Columns:        bindingColumns("RoleBinding", "roleBinding", ref, subjects),
		REST:           guarded(binding(guard, ref), "rolebindings", guard.Policy),
		NotCached:      true,
	}
}

// ClusterRoleBindings is the resource clusterrolebindings.
func ClusterRoleBindings(guard Guard) resource.Of[*rbacv1.ClusterRoleBinding, *rbacv1.ClusterRoleBindingList] {
	ref := func(b *rbacv1.ClusterRoleBinding) *rbacv1.RoleRef { return &b.RoleRef }
	subjects := func(b *rbacv1.ClusterRoleBinding) []rbacv1.Subject { return b.Subjects }
	return resource.Of[*rbacv1.ClusterRoleBinding, *rbacv1.ClusterRoleBindingList]{
		Group:          rbacv1.GroupName,
		Plural:         "clusterrolebindings",
		Honours:        honouredBinding(reflect.TypeFor[rbacv1.ClusterRoleBinding]()),
		Default:        func(b *rbacv1.ClusterRoleBinding) { setDefaults(&b.RoleRef, b.Subjects) },
		Names:          validateName,
		Create:         validateClusterRoleBinding,
		Update:         validateClusterRoleBindingUpdate,
		CreateOnUpdate: true,
		Columns:        bindingColumns("ClusterRoleBinding", "clusterRoleBinding", ref, subjects),
		REST:           guarded(binding(guard, ref), "clusterrolebindings", guard.Policy),
		NotCached:      true,
	}
}

// validateName: names of roles are not names of hosts ("system:node" is one), but they are a part of a path.
func validateName(name string, _ bool) []string { return content.IsPathSegmentName(name) }

// setDefaults fills in API groups: that of roles, users and groups is this one.
func setDefaults(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		if s := &subjects[i]; s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

// roleColumns are those of roles of both kinds. A role's age says nothing, its time of creation does.
func roleColumns[T resource.Object]() []resource.Column[T] {
	return []resource.Column[T]{
		{Name: "Name"},
		{Name: "Created At"},
	}
}

func bindingColumns[T resource.Object](kind, word string, ref func(T) *rbacv1.RoleRef, subjects func(T) []rbacv1.Subject) []resource.Column[T] {
	who := func(kind string) func(T) any {
		return func(b T) any {
			var names []string
			for _, s := range subjects(b) {
				if s.Kind != kind {
					continue
				}
				if kind == rbacv1.ServiceAccountKind {
					names = append(names, s.Namespace+"/"+s.Name)
				} else {
					names = append(names, s.Name)
				}
			}
			return strings.Join(names, ", ")
		}
	}
	return []resource.Column[T]{
		{Name: "Name"},
		{Name: "Role", Doc: "The role that the " + kind + " gives: its kind and its name", Value: func(b T) any { return ref(b).Kind + "/" + ref(b).Name }},
		{Name: "Age"},
		{Name: "Users", Wide: true, Doc: "Users in the " + word, Value: who(rbacv1.UserKind)},
		{Name: "Groups", Wide: true, Doc: "Groups in the " + word, Value: who(rbacv1.GroupKind)},
		{Name: "ServiceAccounts", Wide: true, Doc: "ServiceAccounts in the " + word, Value: who(rbacv1.ServiceAccountKind)},
	}
}

// Nothing is refused: a right that is not understood gives nobody anything, so all is kept as it is.

func honouredRules(role reflect.Type) apifields.Table {
	return apifields.Table{
		role:                                 apifields.All("Rules"),
		reflect.TypeFor[rbacv1.PolicyRule](): apifields.All("Verbs", "APIGroups", "Resources", "ResourceNames", "NonResourceURLs"),
	}
}

func honouredBinding(binding reflect.Type) apifields.Table {
	return apifields.Table{
		binding:                           apifields.All("Subjects", "RoleRef"),
		reflect.TypeFor[rbacv1.Subject](): apifields.All("Kind", "APIGroup", "Name", "Namespace"),
		reflect.TypeFor[rbacv1.RoleRef](): apifields.All("APIGroup", "Kind", "Name"),
	}
}
