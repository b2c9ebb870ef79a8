package pod

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/pods"
)

// EvictionREST is the storage of pods/eviction: creating an Eviction deletes the pod, after it got the condition DisruptionTarget, if the
// PodDisruptionBudget that is about it lets it go.
type EvictionREST struct {
	pods    *REST
	status  *resource.PartREST
	budgets Budgets
}

var (
	_ rest.NamedCreater             = &EvictionREST{}
	_ rest.GroupVersionKindProvider = &EvictionREST{}
	_ rest.GroupVersionAcceptor     = &EvictionREST{}
)

// New implements rest.Storage.
func (*EvictionREST) New() runtime.Object { return &policyv1.Eviction{} }

// Destroy implements rest.Storage. REST owns the store and destroys it.
func (*EvictionREST) Destroy() {}

// GroupVersionKind implements rest.GroupVersionKindProvider: it is of another group than pods, which `kubectl drain` finds out by discovery.
func (*EvictionREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return policyv1.SchemeGroupVersion.WithKind("Eviction")
}

// AcceptsGroupVersion implements rest.GroupVersionAcceptor.
func (*EvictionREST) AcceptsGroupVersion(gv schema.GroupVersion) bool {
	return gv == policyv1.SchemeGroupVersion
}

// Create implements rest.NamedCreater.
func (r *EvictionREST) Create(ctx context.Context, name string, obj runtime.Object,
	createValidation rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	eviction, ok := obj.(*policyv1.Eviction)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected an Eviction, found %T", obj))
	}
	if eviction.Name != name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the Eviction is named %q, but it was sent to the pod %q", eviction.Name, name))
	}
	deletion, err := deletionOf(eviction, options)
	if err != nil {
		return nil, err
	}
	if createValidation != nil {
		if err := createValidation(ctx, eviction.DeepCopy()); err != nil {
			return nil, err
		}
	}
	for range maxLooks {
		var again bool
		if again, err = r.evict(ctx, name, deletion); !again {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// maxLooks is how often a pod is looked at anew that has changed between the look and the deletion.
const maxLooks = 20

// evict looks at a pod and lets it go, if it may. again: it has changed since it was looked at, and nothing was done.
func (r *EvictionREST) evict(ctx context.Context, name string, deletion *metav1.DeleteOptions) (again bool, err error) {
	pod, err := resource.Get[*corev1.Pod](ctx, r.pods, "pod", name, &metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	if err := meets(pod, deletion.Preconditions); err != nil {
		return false, err
	}
	leave, err := r.permit(ctx, pod, deletion.DryRun)
	if err != nil {
		return false, err
	}
	deletion, given := deletion.DeepCopy(), hasVersion(deletion.Preconditions)
	if leave.pinned && !given {
		if deletion.Preconditions == nil {
			deletion.Preconditions = &metav1.Preconditions{}
		}
		deletion.Preconditions.ResourceVersion = &pod.ResourceVersion
	}
	if !dryrun.IsDryRun(deletion.DryRun) {
		err = r.mark(ctx, name, deletion)
	}
	if err == nil {
		// Who may evict pods need not be allowed to delete them.
		_, _, err = r.pods.Delete(ctx, name, rest.ValidateAllObjectFunc, deletion)
	}
	if leave.pinned && !given && apierrors.IsConflict(err) {
		if leave.budget != "" {
			return false, tooSoon(leave.budget)
		}
		return true, err
	}
	return false, err
}

func hasVersion(wanted *metav1.Preconditions) bool {
	return wanted != nil && wanted.ResourceVersion != nil
}

// meets: the pod is the one that the preconditions are about.
func meets(pod *corev1.Pod, wanted *metav1.Preconditions) error {
	if wanted != nil && wanted.UID != nil && *wanted.UID != "" && *wanted.UID != pod.UID {
		return apierrors.NewConflict(corev1.Resource("pods"), pod.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). "+
			"The object might have been deleted and then recreated", *wanted.UID, pod.UID))
	}
	if wanted != nil && wanted.ResourceVersion != nil && *wanted.ResourceVersion != "" && *wanted.ResourceVersion != pod.ResourceVersion {
		return apierrors.NewConflict(corev1.Resource("pods"), pod.Name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the "+
			"ResourceVersion in record (%s). The object might have been modified", *wanted.ResourceVersion, pod.ResourceVersion))
	}
	return nil
}

// deletionOf are the options with which the pod is deleted. A dry run may be asked for in either place.
func deletionOf(eviction *policyv1.Eviction, options *metav1.CreateOptions) (*metav1.DeleteOptions, error) {
	deletion := &metav1.DeleteOptions{}
	if eviction.DeleteOptions != nil {
		deletion = eviction.DeleteOptions.DeepCopy()
	}
	if unsafe := deletion.IgnoreStoreReadErrorWithClusterBreakingPotential; unsafe != nil && *unsafe {
		return nil, apierrors.NewInvalid(policyv1.SchemeGroupVersion.WithKind("Eviction").GroupKind(), eviction.Name, field.ErrorList{field.Invalid(
			field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential"), true, "can not be set for pod eviction, try after removing the option")})
	}
	switch {
	case len(deletion.DryRun) == 0:
		deletion.DryRun = options.DryRun
	case len(options.DryRun) > 0 && !slices.Equal(deletion.DryRun, options.DryRun):
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the dryRun of the request is %q, that of deleteOptions is %q: they must be the same", options.DryRun, deletion.DryRun))
	}
	return deletion, nil
}

// mark gives the pod the condition, if it is the one that the preconditions are about; these go on with the version that it has then.
func (r *EvictionREST) mark(ctx context.Context, name string, deletion *metav1.DeleteOptions) error {
	wanted := deletion.Preconditions
	change := func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		pod := old.(*corev1.Pod).DeepCopy()
		if err := meets(pod, wanted); err != nil {
			return nil, err
		}
		pods.SetCondition(&pod.Status, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation,
			Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
		}, time.Now())
		return pod, nil
	}
	obj, _, err := r.status.Update(ctx, name, rest.DefaultUpdatedObjectInfo(nil, change), nil, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	if hasVersion(wanted) {
		deletion.Preconditions.ResourceVersion = &obj.(*corev1.Pod).ResourceVersion
	}
	return nil
}
