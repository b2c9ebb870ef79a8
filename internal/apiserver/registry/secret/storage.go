// Package secret serves the resource secrets of core/v1.
package secret

import (
	"fmt"

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

// NewStorage opens the storage of secrets.
func NewStorage(opts generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	s := base.Checked[*corev1.Secret]{Strategy: base.New(), Namespaced: true, OnCreate: validate, OnUpdate: validateUpdate}
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &corev1.Secret{} },
		NewListFunc:               func() runtime.Object { return &corev1.SecretList{} },
		DefaultQualifiedResource:  corev1.Resource("secrets"),
		SingularQualifiedResource: corev1.Resource("secret"),
		TableConvertor:            printers.Secrets(),
	}
	if err := base.Open(store, s, &generic.StoreOptions{RESTOptions: opts, AttrFunc: getAttrs}); err != nil {
		return nil, err
	}
	return map[string]rest.Storage{"secrets": store}, nil
}

func getAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	s, ok := obj.(*corev1.Secret)
	if !ok {
		return nil, nil, fmt.Errorf("expected a Secret, found %T", obj)
	}
	return s.Labels, generic.AddObjectMetaFieldsSet(fields.Set{"type": string(s.Type)}, &s.ObjectMeta, true), nil
}

// AddToScheme is the scheme.Hook of secrets.
func AddToScheme(s *runtime.Scheme) error {
	s.AddTypeDefaultingFunc(&corev1.Secret{}, func(obj any) { setDefaults(obj.(*corev1.Secret)) })
	s.AddTypeDefaultingFunc(&corev1.SecretList{}, func(obj any) {
		list := obj.(*corev1.SecretList)
		for i := range list.Items {
			setDefaults(&list.Items[i])
		}
	})
	return scheme.SelectableFields(corev1.SchemeGroupVersion.WithKind("Secret"), "type")(s)
}

// setDefaults gives a secret its type and moves stringData into data: it is a way to write, never stored nor shown
// (core/v1, Secret.stringData).
func setDefaults(s *corev1.Secret) {
	if s.Type == "" {
		s.Type = corev1.SecretTypeOpaque
	}
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for k, v := range s.StringData {
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
}
