// Package configmap serves the resource configmaps of core/v1.
package configmap

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/printers"
	"monopod.dev/monopod/internal/apiserver/registry/base"
	"monopod.dev/monopod/internal/apiserver/scheme"
)

// REST is the storage of configmaps.
type REST struct{ *genericregistry.Store }

var (
	_ rest.StandardStorage    = &REST{}
	_ rest.ShortNamesProvider = &REST{}
)

// NewStorage opens the storage of configmaps.
func NewStorage(opts generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	s := strategy{base.New()}
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &corev1.ConfigMap{} },
		NewListFunc:               func() runtime.Object { return &corev1.ConfigMapList{} },
		DefaultQualifiedResource:  corev1.Resource("configmaps"),
		SingularQualifiedResource: corev1.Resource("configmap"),
		CreateStrategy:            s,
		UpdateStrategy:            s,
		DeleteStrategy:            s,
		TableConvertor:            printers.ConfigMaps(),
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: opts}); err != nil {
		return nil, fmt.Errorf("storage of configmaps: %w", err)
	}
	return map[string]rest.Storage{"configmaps": &REST{store}}, nil
}

// ShortNames implements rest.ShortNamesProvider.
func (*REST) ShortNames() []string { return []string{"cm"} }

// AddFields is the scheme.Hook of configmaps.
func AddFields(s *runtime.Scheme) error {
	return scheme.SelectableFields(corev1.SchemeGroupVersion.WithKind("ConfigMap"))(s)
}
