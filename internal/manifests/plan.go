package manifests

import (
	"cmp"
	"slices"
)

// Plan is what is to be done so that the API has what a directory holds.
type Plan struct {
	// Before is the inventory that is to be written before anything is done: all that is there and all that is to be.
	Before Inventory
	// Apply are the objects in the order in which they are applied, Prune those that are to be deleted, in that order.
	Apply []Document
	Prune []Key
	// After is the inventory when all of it has been done.
	After Inventory
}

// Decide says what is to be done by what a directory holds and what the inventory has.
func Decide(r Reading, had Inventory) Plan {
	p := Plan{Before: Inventory{}, After: Inventory{}, Apply: slices.Clone(r.Documents)}
	for _, d := range r.Documents {
		e := Entry{Version: d.Object.GroupVersionKind().Version, File: d.File}
		p.Before[keyOf(d.Object)], p.After[keyOf(d.Object)] = e, e
	}
	for k, e := range had {
		if _, wanted := p.After[k]; wanted {
			continue
		}
		p.Before[k] = e
		if r.Faults[e.File] != nil {
			p.After[k] = e // what the file says of it cannot be told
		} else {
			p.Prune = append(p.Prune, k)
		}
	}
	slices.SortStableFunc(p.Apply, func(a, b Document) int { return cmp.Compare(turn(keyOf(a.Object)), turn(keyOf(b.Object))) })
	slices.SortFunc(p.Prune, func(a, b Key) int {
		return cmp.Or(cmp.Compare(turn(b), turn(a)), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return p
}

// turn is when an object is applied: what others need to be let in comes before them. Of one turn the order is that of the files.
func turn(k Key) int {
	switch k.Group + "/" + k.Kind {
	case "/Namespace":
		return 0
	case "apiextensions.k8s.io/CustomResourceDefinition", "scheduling.k8s.io/PriorityClass", "node.k8s.io/RuntimeClass":
		return 1
	case "/ServiceAccount", "/Secret", "/ConfigMap", "/LimitRange", "/ResourceQuota",
		"rbac.authorization.k8s.io/ClusterRole", "rbac.authorization.k8s.io/ClusterRoleBinding", "rbac.authorization.k8s.io/Role", "rbac.authorization.k8s.io/RoleBinding":
		return 2
	case "/Service": // containers have variables of those that are there when they begin
		return 3
	}
	return 4
}
