package resource

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// PartREST is a subresource that reads and updates a part of its resource's objects: status, finalize. Its object is the
// whole one; which part may change is for the strategy to say.
type PartREST struct{ store *genericregistry.Store }

var (
	_ rest.Storage             = &PartREST{}
	_ rest.Patcher             = &PartREST{}
	_ rest.ResetFieldsStrategy = &PartREST{}
	_ rest.TableConvertor      = &PartREST{}
)

// NewPartREST makes a subresource of the objects of store, which stays the owner of the connection to the storage.
func NewPartREST(store *genericregistry.Store, strategy PartStrategy) *PartREST {
	part := *store
	part.UpdateStrategy = strategy
	part.ResetFieldsStrategy = strategy
	return &PartREST{store: &part}
}

// New implements rest.Storage.
func (p *PartREST) New() runtime.Object { return p.store.New() }

// Destroy implements rest.Storage. The resource destroys the store.
func (*PartREST) Destroy() {}

// Get implements rest.Getter.
func (p *PartREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return p.store.Get(ctx, name, options)
}

// Update implements rest.Updater. An object never comes into being through a part of it.
func (p *PartREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc,
	_ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return p.store.Update(ctx, name, objInfo, createValidation, updateValidation, false, options)
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (p *PartREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return p.store.GetResetFields()
}

// ConvertToTable implements rest.TableConvertor.
func (p *PartREST) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return p.store.ConvertToTable(ctx, object, options)
}
