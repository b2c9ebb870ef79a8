package job

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
)

// jobs is the storage of jobs. Whoever deletes one without saying what is to become of its pods is warned that they stay.
type jobs struct{ *genericregistry.Store }

var (
	_ rest.StandardStorage    = &jobs{}
	_ rest.CategoriesProvider = &jobs{}
)

// Categories implements rest.CategoriesProvider: `kubectl get all` lists jobs.
func (*jobs) Categories() []string { return []string{"all"} }

// Delete implements rest.GracefulDeleter.
func (j *jobs) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	warnOfPods(ctx, options)
	return j.Store.Delete(ctx, name, validate, options)
}

// DeleteCollection implements rest.CollectionDeleter.
func (j *jobs) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
	list *internalversion.ListOptions) (runtime.Object, error) {
	warnOfPods(ctx, options)
	return j.Store.DeleteCollection(ctx, validate, options, list)
}

func warnOfPods(ctx context.Context, options *metav1.DeleteOptions) {
	//nolint:staticcheck // clients may still say it by the older field
	if options == nil || options.PropagationPolicy != nil || options.OrphanDependents != nil {
		return
	}
	warning.AddWarning(ctx, "", "the pods of a deleted job stay by default; delete it with propagationPolicy=Background to remove them, "+
		"or with propagationPolicy=Orphan to keep them without this warning")
}
