package resource

import (
	"fmt"

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

// Open opens all resources.
func Open(resources []Resource, options generic.RESTOptionsGetter) (Storages, error) {
	all := Storages{}
	for _, r := range resources {
		storages, err := r.Open(options)
		if err != nil {
			return nil, err
		}
		for _, at := range r.Served() {
			if all[at.GroupVersion()] == nil {
				all[at.GroupVersion()] = map[string]rest.Storage{}
			}
			for path, storage := range storages {
				if all[at.GroupVersion()][path] != nil {
					return nil, fmt.Errorf("%s is served twice in %s", path, at.GroupVersion())
				}
				all[at.GroupVersion()][path] = storage
			}
		}
	}
	return all, nil
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
