package pod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/podstarts"
)

// Storage holds the REST storages of pods and of the subresources that change them. They share one connection to the store.
type Storage struct {
	Pod        *REST
	Status     *resource.PartREST
	Binding    *BindingREST
	OldBinding *OldBindingREST
	Ephemeral  *EphemeralContainersREST
}

// Config is what the subresources of pods need that lead elsewhere.
type Config struct {
	// Pods and Status are the storages of pods and of pods/status.
	Pods   *REST
	Status *resource.PartREST
	// Agents tells how to reach the agent of a node.
	Agents Agents
	// Authorizer is that of the server: some requests for a subresource need more than their own verb.
	Authorizer authorizer.UnconditionalAuthorizer
	// Budgets says which evictions of pods are too many.
	Budgets Budgets
}

// NewStorage opens the storages of pods. timeline remembers when pods were made and bound; nil: nobody does.
func NewStorage(opts generic.RESTOptionsGetter, timeline *podstarts.Recorder) (Storage, error) {
	s := newStrategy()
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &corev1.Pod{} },
		NewListFunc:               func() runtime.Object { return &corev1.PodList{} },
		PredicateFunc:             matchPod,
		DefaultQualifiedResource:  corev1.Resource("pods"),
		SingularQualifiedResource: corev1.Resource("pod"),
		ReturnDeletedObject:       true,
		TableConvertor:            Table(),
	}
	options := &generic.StoreOptions{
		RESTOptions: opts,
		AttrFunc:    getAttrs,
		// Agents watch the pods of their node: the index lets the watch cache wake only them.
		TriggerFunc: storage.IndexerFuncs{nodeNameField: nodeNameOf},
		Indexers:    &cache.Indexers{storage.FieldIndex(nodeNameField): nodeNameIndex},
	}
	store.CreateStrategy, store.UpdateStrategy, store.DeleteStrategy, store.ResetFieldsStrategy = s, s, s, s
	store.BeginCreate = noteCreate(timeline)
	if err := store.CompleteWithOptions(options); err != nil {
		return Storage{}, fmt.Errorf("storage of pods: %w", err)
	}
	binding := &BindingREST{store, timeline}
	return Storage{
		Pod:        &REST{store},
		Status:     resource.NewPartREST(store, statusStrategy{s}),
		Binding:    binding,
		OldBinding: &OldBindingREST{binding},
		Ephemeral:  newEphemeralContainersREST(store, s),
	}, nil
}

// Map returns the storages by the path of their resource, as a generic API server installs them.
func (s Storage) Map() map[string]rest.Storage {
	return map[string]rest.Storage{
		"pods":                     s.Pod,
		"pods/status":              s.Status,
		"pods/binding":             s.Binding,
		"bindings":                 s.OldBinding,
		"pods/ephemeralcontainers": s.Ephemeral,
	}
}

// REST is the storage of pods.
type REST struct{ *genericregistry.Store }

var (
	_ rest.StandardStorage    = &REST{}
	_ rest.ShortNamesProvider = &REST{}
	_ rest.CategoriesProvider = &REST{}
)

// ShortNames implements rest.ShortNamesProvider.
func (*REST) ShortNames() []string { return []string{"po"} }

// Categories implements rest.CategoriesProvider: `kubectl get all` lists pods.
func (*REST) Categories() []string { return []string{"all"} }
