package pod

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"monopod.dev/monopod/internal/pods/validation"
)

// EphemeralContainersREST is the storage of pods/ephemeralcontainers, by which `kubectl debug POD` adds a container to a pod. Those that a pod has stay as
// they are, and nothing else of it changes by this way. No role of every cluster but the administrator's has a right to it: who may add a container to a pod
// has all that the pod has.
type EphemeralContainersREST struct{ store *genericregistry.Store }

var (
	_ rest.Patcher                   = &EphemeralContainersREST{}
	_ rest.ResetFieldsFilterStrategy = &EphemeralContainersREST{}
)

func newEphemeralContainersREST(store *genericregistry.Store, s strategy) *EphemeralContainersREST {
	part := *store
	part.UpdateStrategy = ephemeralStrategy{s}
	part.ResetFieldsStrategy = nil // it is a filter, below
	return &EphemeralContainersREST{&part}
}

// New implements rest.Storage.
func (*EphemeralContainersREST) New() runtime.Object { return &corev1.Pod{} }

// Destroy implements rest.Storage. REST owns the store and destroys it.
func (*EphemeralContainersREST) Destroy() {}

// Get implements rest.Getter.
func (r *EphemeralContainersREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update implements rest.Updater. A pod never comes into being by this way.
func (r *EphemeralContainersREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, objInfo, createValidation, updateValidation, false, options)
}

// GetResetFieldsFilter implements rest.ResetFieldsFilterStrategy: who applies by this way owns ephemeral containers and nothing else.
func (*EphemeralContainersREST) GetResetFieldsFilter() map[fieldpath.APIVersion]fieldpath.Filter {
	return map[fieldpath.APIVersion]fieldpath.Filter{
		"v1": fieldpath.NewIncludeMatcherFilter(fieldpath.MakePrefixMatcherOrDie("spec", "ephemeralContainers")),
	}
}

// ephemeralStrategy rules updates through pods/ephemeralcontainers.
type ephemeralStrategy struct{ strategy }

var _ rest.RESTUpdateStrategy = ephemeralStrategy{}

// PrepareForUpdate implements rest.RESTUpdateStrategy: all but the ephemeral containers is as it was.
func (ephemeralStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	newPod, oldPod := obj.(*corev1.Pod), old.(*corev1.Pod)
	wanted := newPod.Spec.EphemeralContainers
	newPod.Spec, newPod.Status = oldPod.Spec, oldPod.Status
	metav1.ResetObjectMetaForStatus(&newPod.ObjectMeta, &oldPod.ObjectMeta)
	newPod.Spec.EphemeralContainers = wanted
	setGeneration(newPod, oldPod)
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (ephemeralStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validateEphemeralUpdate(obj.(*corev1.Pod), old.(*corev1.Pod))
}

// validateEphemeralUpdate tells what is wrong with the ephemeral containers that a pod is to have instead of those that it has.
func validateEphemeralUpdate(newPod, oldPod *corev1.Pod) field.ErrorList {
	if _, mirror := oldPod.Annotations[corev1.MirrorPodAnnotationKey]; mirror { // it comes from a file of its node
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	errs := apivalidation.ValidateObjectMetaUpdate(&newPod.ObjectMeta, &oldPod.ObjectMeta, field.NewPath("metadata"))
	wanted := map[string]*corev1.EphemeralContainer{} // a patch may change the order
	for i := range newPod.Spec.EphemeralContainers {
		wanted[newPod.Spec.EphemeralContainers[i].Name] = &newPod.Spec.EphemeralContainers[i]
	}
	spec, had := field.NewPath("spec"), sets.New[string]()
	for i := range oldPod.Spec.EphemeralContainers {
		old := &oldPod.Spec.EphemeralContainers[i]
		had.Insert(old.Name)
		switch now := wanted[old.Name]; {
		case now == nil:
			errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), fmt.Sprintf("existing ephemeral containers %q may not be removed", old.Name)))
		case !apiequality.Semantic.DeepEqual(now, old):
			errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), fmt.Sprintf("existing ephemeral containers %q may not be changed", old.Name)))
		}
	}
	return append(errs, validation.EphemeralContainers(&newPod.Spec, had, spec)...)
}
