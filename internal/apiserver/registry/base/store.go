package base

import (
	"fmt"

	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// StoreStrategy rules the objects of a resource. One that implements rest.ResetFieldsStrategy says which fields it resets, too.
type StoreStrategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
	rest.RESTDeleteStrategy
}

// Open connects the store of a resource to the storage. s rules what is created, updated and deleted in it.
func Open(store *genericregistry.Store, s StoreStrategy, options *generic.StoreOptions) error {
	store.CreateStrategy, store.UpdateStrategy, store.DeleteStrategy = s, s, s
	if reset, ok := s.(rest.ResetFieldsStrategy); ok {
		store.ResetFieldsStrategy = reset
	}
	if err := store.CompleteWithOptions(options); err != nil {
		return fmt.Errorf("storage of %s: %w", store.DefaultQualifiedResource.Resource, err)
	}
	return nil
}
