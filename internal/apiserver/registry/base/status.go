package base

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Part is a subresource that reads and updates a part of its resource's objects: status, finalize. Its object is the
// whole one; which part may change is for the strategy to say.
type Part struct{ store *genericregistry.Store }

var (
	_ rest.Storage             = &Part{}
	_ rest.Patcher             = &Part{}
	_ rest.ResetFieldsStrategy = &Part{}
	_ rest.TableConvertor      = &Part{}
)

// PartStrategy says which part of an object a subresource may change.
type PartStrategy interface {
	rest.RESTUpdateStrategy
	rest.ResetFieldsStrategy
}

// NewPart makes a subresource of the objects of store, which stays the owner of the connection to the storage.
func NewPart(store *genericregistry.Store, strategy PartStrategy) *Part {
	part := *store
	part.UpdateStrategy = strategy
	part.ResetFieldsStrategy = strategy
	return &Part{store: &part}
}

// New implements rest.Storage.
func (p *Part) New() runtime.Object { return p.store.New() }

// Destroy implements rest.Storage. The resource destroys the store.
func (*Part) Destroy() {}

// Get implements rest.Getter.
func (p *Part) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return p.store.Get(ctx, name, options)
}

// Update implements rest.Updater. An object never comes into being through a part of it.
func (p *Part) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc,
	_ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return p.store.Update(ctx, name, objInfo, createValidation, updateValidation, false, options)
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (p *Part) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return p.store.GetResetFields()
}

// ConvertToTable implements rest.TableConvertor.
func (p *Part) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return p.store.ConvertToTable(ctx, object, options)
}

// Reset names fields of v1 that a strategy resets, as paths of names below the object: Reset("status").
func Reset(version fieldpath.APIVersion, names ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	set := fieldpath.NewSet()
	for _, n := range names {
		set.Insert(fieldpath.MakePathOrDie(n))
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{version: set}
}
