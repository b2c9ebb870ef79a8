// Package lease serves the resource leases of coordination.k8s.io/v1: heartbeats of nodes, locks of controllers.
package lease

import (
	"reflect"

	coordinationv1 "k8s.io/api/coordination/v1"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource leases.
func Resource() resource.Of[*coordinationv1.Lease, *coordinationv1.LeaseList] {
	return resource.Of[*coordinationv1.Lease, *coordinationv1.LeaseList]{
		Group:      coordinationv1.GroupName,
		Plural:     "leases",
		Namespaced: true,
		ReadBy:     resource.Editor,
		WrittenBy:  resource.Editor,
		Honours: apifields.Table{
			reflect.TypeFor[coordinationv1.Lease](): apifields.All("Spec"),
			// Strategy and PreferredHolder are of coordinated leader election, for which a controller would be needed.
			reflect.TypeFor[coordinationv1.LeaseSpec](): apifields.All("HolderIdentity", "LeaseDurationSeconds", "AcquireTime", "RenewTime", "LeaseTransitions").
				And(apifields.Refused, "Strategy", "PreferredHolder"),
		},
		Create: validate,
		// A holder may PUT its lease without asking first. A lease is a lock, so an update names what it replaces.
		CreateOnUpdate: true,
		NamedUpdate:    true,
		Columns: []resource.Column[*coordinationv1.Lease]{
			{Name: "Name"},
			{Name: "Holder", Doc: coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"], Value: holder},
			{Name: "Age"},
		},
	}
}

func holder(l *coordinationv1.Lease) any {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}
