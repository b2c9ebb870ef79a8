// Package lease serves the resource leases of coordination.k8s.io/v1: heartbeats of nodes, locks of controllers.
package lease

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/printers"
	"monopod.dev/monopod/internal/apiserver/registry/base"
	"monopod.dev/monopod/internal/apiserver/scheme"
)

// NewStorage opens the storage of leases.
func NewStorage(opts generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	s := newStrategy()
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &coordinationv1.Lease{} },
		NewListFunc:               func() runtime.Object { return &coordinationv1.LeaseList{} },
		DefaultQualifiedResource:  schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"},
		SingularQualifiedResource: schema.GroupResource{Group: coordinationv1.GroupName, Resource: "lease"},
		TableConvertor:            printers.Leases(),
	}
	if err := base.Open(store, s, &generic.StoreOptions{RESTOptions: opts}); err != nil {
		return nil, err
	}
	return map[string]rest.Storage{"leases": store}, nil
}

// AddFields is the scheme.Hook of leases.
func AddFields(s *runtime.Scheme) error {
	return scheme.SelectableFields(coordinationv1.SchemeGroupVersion.WithKind("Lease"))(s)
}
