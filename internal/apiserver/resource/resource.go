package resource

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Resource is one resource with its subresources, as the API server takes it.
type Resource interface {
	// Served are the places at which it is served. The first one is where its objects are stored.
	Served() []schema.GroupVersionResource
	// AddToScheme registers what the scheme is to know of its kinds beside their Go types.
	AddToScheme(s *runtime.Scheme) error
	// Open opens its storages, by their paths: "pods", "pods/status".
	Open(options generic.RESTOptionsGetter) (map[string]rest.Storage, error)
	// Uncached: its objects are read from the store each time.
	Uncached() bool
	// Rights are what the roles that every cluster has may do with it.
	Rights() []Right
}

// Storages are the storages of resources, by group and version and the path below it.
type Storages map[schema.GroupVersion]map[string]rest.Storage

// Open opens resources, beside those that are open. One that needs the storages of others is made, and opened, after them.
func (all Storages) Open(options generic.RESTOptionsGetter, resources ...Resource) error {
	for _, r := range resources {
		storages, err := r.Open(options)
		if err != nil {
			return err
		}
		for _, at := range r.Served() {
			if all[at.GroupVersion()] == nil {
				all[at.GroupVersion()] = map[string]rest.Storage{}
			}
			for path, storage := range storages {
				if all[at.GroupVersion()][path] != nil {
					return fmt.Errorf("%s is served twice in %s", path, at.GroupVersion())
				}
				all[at.GroupVersion()][path] = storage
			}
		}
	}
	return nil
}

// Close closes all storages. It is for those that no server was given, which closes them else.
func (all Storages) Close() {
	for _, storages := range all {
		for _, storage := range storages {
			storage.Destroy()
		}
	}
}

// Find is the storage at a path of a group and version, for what is asked of it. An error says that there is none which can do that.
func Find[T any](all Storages, in schema.GroupVersion, path string) (T, error) {
	storage := all[in][path]
	found, ok := storage.(T)
	if !ok {
		return found, fmt.Errorf("the storage of %s in %s is a %T, not a %s", path, in, storage, reflect.TypeFor[T]())
	}
	return found, nil
}

// PartOf is a resource of storages that are made already: questions that are answered and not stored, and subresources that lead elsewhere, which are made when what they
// need is open. A subresource is served where its resource is.
func PartOf(at schema.GroupVersionResource, storages map[string]rest.Storage, roles ...Right) Resource {
	return Made{
		At:       []schema.GroupVersionResource{at},
		Storages: func(generic.RESTOptionsGetter) (map[string]rest.Storage, error) { return storages, nil },
		Roles:    roles,
	}
}

// Made is a Resource whose storages are made by hand.
type Made struct {
	At []schema.GroupVersionResource
	// Scheme may be nil.
	Scheme   func(s *runtime.Scheme) error
	Storages func(options generic.RESTOptionsGetter) (map[string]rest.Storage, error)
	Roles    []Right
}

var _ Resource = Made{}

// Served implements Resource.
func (m Made) Served() []schema.GroupVersionResource { return m.At }

// AddToScheme implements Resource.
func (m Made) AddToScheme(s *runtime.Scheme) error {
	if m.Scheme == nil {
		return nil
	}
	return m.Scheme(s)
}

// Open implements Resource.
func (m Made) Open(options generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	return m.Storages(options)
}

// Uncached implements Resource.
func (Made) Uncached() bool { return false }

// Rights implements Resource.
func (m Made) Rights() []Right { return m.Roles }
