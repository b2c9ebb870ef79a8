// Package configmap serves the resource configmaps of core/v1.
package configmap

import (
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
	s := base.Checked[*corev1.ConfigMap]{Strategy: base.New(), Namespaced: true, OnCreate: validate, OnUpdate: validateUpdate}
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &corev1.ConfigMap{} },
		NewListFunc:               func() runtime.Object { return &corev1.ConfigMapList{} },
		DefaultQualifiedResource:  corev1.Resource("configmaps"),
		SingularQualifiedResource: corev1.Resource("configmap"),
		TableConvertor:            printers.ConfigMaps(),
	}
	if err := base.Open(store, s, &generic.StoreOptions{RESTOptions: opts}); err != nil {
		return nil, err
	}
	return map[string]rest.Storage{"configmaps": &REST{store}}, nil
}

// ShortNames implements rest.ShortNamesProvider.
func (*REST) ShortNames() []string { return []string{"cm"} }

// AddFields is the scheme.Hook of configmaps.
func AddFields(s *runtime.Scheme) error {
	return scheme.SelectableFields(corev1.SchemeGroupVersion.WithKind("ConfigMap"))(s)
}
