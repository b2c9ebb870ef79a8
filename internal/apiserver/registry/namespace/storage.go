package namespace

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storageerrors "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"
)

// removable says that an update has finished a deletion.
func removable(ctx context.Context, key string, obj, existing runtime.Object) bool {
	return len(obj.(*corev1.Namespace).Spec.Finalizers) == 0 &&
		genericregistry.ShouldDeleteDuringUpdate(ctx, key, obj, existing)
}

// REST is the storage of namespaces. Namespaces are deleted one by one: there is no deletion of the collection.
type REST struct{ store *genericregistry.Store }

var (
	_ rest.Storage              = &REST{}
	_ rest.Lister               = &REST{}
	_ rest.CreaterUpdater       = &REST{}
	_ rest.GracefulDeleter      = &REST{}
	_ rest.Watcher              = &REST{}
	_ rest.Getter               = &REST{}
	_ rest.Scoper               = &REST{}
	_ rest.ShortNamesProvider   = &REST{}
	_ rest.SingularNameProvider = &REST{}
	_ rest.StorageWithReadiness = &REST{}
	_ rest.ResetFieldsStrategy  = &REST{}
	_ rest.TableConvertor       = &REST{}
)

// Delete implements rest.GracefulDeleter: it begins the deletion, or ends it when nothing holds the namespace any more.
func (r *REST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	obj, err := r.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	ns := obj.(*corev1.Namespace)
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	// The namespace that was looked at is the one to delete, and no later one of its name.
	pre := storage.Preconditions{UID: &ns.UID}
	if p := options.Preconditions; p != nil {
		pre.ResourceVersion = p.ResourceVersion
		if p.UID != nil && *p.UID != ns.UID {
			return nil, false, apierrors.NewConflict(corev1.Resource("namespaces"), name,
				fmt.Errorf("the UID in the precondition is %s, the namespace has %s", *p.UID, ns.UID))
		}
	}
	if ns.DeletionTimestamp.IsZero() {
		return r.beginDelete(ctx, name, validate, pre, options)
	}
	if len(ns.Spec.Finalizers) > 0 {
		return ns, false, nil
	}
	return r.store.Delete(ctx, name, validate, options)
}

// beginDelete marks the namespace as terminating.
func (r *REST) beginDelete(ctx context.Context, name string, validate rest.ValidateObjectFunc, pre storage.Preconditions,
	options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	key, err := r.store.KeyFunc(ctx, name)
	if err != nil {
		return nil, false, err
	}
	out := r.store.NewFunc()
	err = r.store.Storage.GuaranteedUpdate(ctx, key, out, false, &pre,
		storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			ns := obj.(*corev1.Namespace)
			if err := validate(ctx, ns); err != nil {
				return nil, err
			}
			if ns.DeletionTimestamp.IsZero() {
				now := metav1.Now()
				ns.DeletionTimestamp = &now
			}
			ns.Status.Phase = corev1.NamespaceTerminating
			ns.Finalizers = collectorFinalizers(ns.Finalizers, options)
			return ns, nil
		}), dryrun.IsDryRun(options.DryRun), nil)
	if err != nil {
		return nil, false, storageerrors.InterpretGetError(err, corev1.Resource("namespaces"), name)
	}
	return out, false, nil
}

// collectorFinalizers gives a namespace the finalizers for the garbage collector that a deletion asks for. Without a wish it keeps those that it has.
func collectorFinalizers(has []string, options *metav1.DeleteOptions) []string {
	var want string
	switch orphan, policy := options.OrphanDependents, options.PropagationPolicy; { //nolint:staticcheck // older clients say it so
	case orphan == nil && policy == nil:
		return has
	case orphan != nil && *orphan, policy != nil && *policy == metav1.DeletePropagationOrphan:
		want = metav1.FinalizerOrphanDependents
	case orphan != nil, *policy == metav1.DeletePropagationForeground:
		want = metav1.FinalizerDeleteDependents
	}
	var finalizers []string
	for _, f := range has {
		if f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents {
			finalizers = append(finalizers, f)
		}
	}
	if want != "" {
		finalizers = append(finalizers, want)
	}
	return finalizers
}
