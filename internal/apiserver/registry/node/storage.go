// Package node serves the resource nodes of core/v1 and its subresources status and proxy.
package node

import (
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/printers"
	"monopod.dev/monopod/internal/apiserver/registry/base"
	"monopod.dev/monopod/internal/apiserver/scheme"
)

// Storage holds the REST storages of nodes.
type Storage struct {
	Node   *REST
	Status *base.Part
}

// REST is the storage of nodes.
type REST struct{ *genericregistry.Store }

var (
	_ rest.StandardStorage    = &REST{}
	_ rest.ShortNamesProvider = &REST{}
)

// NewStorage opens the storages of nodes.
func NewStorage(opts generic.RESTOptionsGetter) (Storage, error) {
	s := newStrategy()
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &corev1.Node{} },
		NewListFunc:               func() runtime.Object { return &corev1.NodeList{} },
		DefaultQualifiedResource:  corev1.Resource("nodes"),
		SingularQualifiedResource: corev1.Resource("node"),
		TableConvertor:            printers.Nodes(),
	}
	if err := base.Open(store, s, &generic.StoreOptions{RESTOptions: opts, AttrFunc: getAttrs}); err != nil {
		return Storage{}, err
	}
	return Storage{Node: &REST{store}, Status: base.NewPart(store, statusStrategy{s})}, nil
}

// Map returns the storages by the path of their resource.
func (s Storage) Map() map[string]rest.Storage {
	return map[string]rest.Storage{"nodes": s.Node, "nodes/status": s.Status}
}

// ShortNames implements rest.ShortNamesProvider.
func (*REST) ShortNames() []string { return []string{"no"} }

// AddToScheme is the scheme.Hook of nodes.
func AddToScheme(s *runtime.Scheme) error {
	return errors.Join(scheme.SelectableFields(corev1.SchemeGroupVersion.WithKind("Node"), "spec.unschedulable")(s), AddOptions(s))
}

func getAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return nil, nil, fmt.Errorf("expected a Node, found %T", obj)
	}
	set := fields.Set{"spec.unschedulable": strconv.FormatBool(n.Spec.Unschedulable)}
	return n.Labels, generic.AddObjectMetaFieldsSet(set, &n.ObjectMeta, false), nil
}
