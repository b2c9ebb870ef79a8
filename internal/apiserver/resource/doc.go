// Package resource makes a resource of the Kubernetes API out of what is particular to it.
//
// A resource is one value
//
//	resource.Of[*corev1.ConfigMap, *corev1.ConfigMapList]{Plural: "configmaps", Short: []string{"cm"}, Namespaced: true, Create: validate, ...}
//
// in a folder of its own and one line in the API server's list of resources. What the library wants of a resource derives from it: what the scheme
// knows of its kinds (defaults, the fields of selectors), its storages, its table, its rights in the roles that every cluster has, and that its objects
// go with their namespace. docs/recipes/add-a-resource.md shows how one is made.
//
// Any API group and version will do: a Group says where the group's Go types and their documentation are.
package resource
