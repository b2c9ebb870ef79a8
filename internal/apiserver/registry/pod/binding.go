package pod

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/dryrun"

	"monopod.dev/monopod/internal/kit/podstarts"
	"monopod.dev/monopod/internal/pods"
	podvalidation "monopod.dev/monopod/internal/pods/validation"
)

// BindingREST is the storage of pods/binding: creating a Binding gives the pod its node, once.
type BindingREST struct {
	store    *genericregistry.Store
	timeline *podstarts.Recorder
}

var (
	_ rest.NamedCreater                   = &BindingREST{}
	_ rest.SubresourceObjectMetaPreserver = &BindingREST{}
)

// New implements rest.Storage.
func (*BindingREST) New() runtime.Object { return &corev1.Binding{} }

// Destroy implements rest.Storage. REST owns the store and destroys it.
func (*BindingREST) Destroy() {}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate implements rest.SubresourceObjectMetaPreserver: a Binding's
// uid and resourceVersion are those of the pod, and the conditions on which it is bound.
func (*BindingREST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// Create implements rest.NamedCreater: in one write the pod gets its node, the Binding's annotations and the condition
// PodScheduled. It is a conflict when the pod has a node already or is being deleted.
func (r *BindingREST) Create(ctx context.Context, name string, obj runtime.Object,
	createValidation rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	binding, ok := obj.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a Binding, found %T", obj))
	}
	if binding.Name != name {
		return nil, apierrors.NewBadRequest(
			fmt.Sprintf("the Binding is named %q, but it was sent to the pod %q", binding.Name, name))
	}
	if errs := validateBinding(binding); len(errs) > 0 {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Binding").GroupKind(), name, errs)
	}
	if createValidation != nil {
		if err := createValidation(ctx, binding.DeepCopy()); err != nil {
			return nil, err
		}
	}
	if err := r.bind(ctx, name, binding, dryrun.IsDryRun(options.DryRun)); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// OldBindingREST is the storage of bindings, the place from before pods had subresources: a Binding that is created there is of the pod of its own name. Its uid
// and resourceVersion are no conditions: of an object that is no part of another one the server keeps neither.
type OldBindingREST struct{ pods *BindingREST }

var (
	_ rest.Creater              = &OldBindingREST{}
	_ rest.Scoper               = &OldBindingREST{}
	_ rest.SingularNameProvider = &OldBindingREST{}
)

// New implements rest.Storage.
func (*OldBindingREST) New() runtime.Object { return &corev1.Binding{} }

// Destroy implements rest.Storage. REST owns the store and destroys it.
func (*OldBindingREST) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (*OldBindingREST) NamespaceScoped() bool { return true }

// GetSingularName implements rest.SingularNameProvider.
func (*OldBindingREST) GetSingularName() string { return "binding" }

// Create implements rest.Creater.
func (r *OldBindingREST) Create(ctx context.Context, obj runtime.Object, createValidation rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	binding, ok := obj.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a Binding, found %T", obj))
	}
	if binding.Name == "" {
		return nil, apierrors.NewBadRequest("the Binding must have the name of the pod (metadata.name)")
	}
	return r.pods.Create(ctx, binding.Name, binding, createValidation, options)
}

func (r *BindingREST) bind(ctx context.Context, name string, binding *corev1.Binding, dryRun bool) error {
	begun := time.Now()
	key, err := r.store.KeyFunc(ctx, name)
	if err != nil {
		return err
	}
	var preconditions *storage.Preconditions
	if binding.UID != "" || binding.ResourceVersion != "" {
		preconditions = &storage.Preconditions{}
		if binding.UID != "" {
			preconditions.UID = &binding.UID
		}
		if binding.ResourceVersion != "" {
			preconditions.ResourceVersion = &binding.ResourceVersion
		}
	}
	var refusal error
	var uid types.UID
	err = r.store.Storage.GuaranteedUpdate(ctx, key, &corev1.Pod{}, false, preconditions,
		storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			pod := obj.(*corev1.Pod)
			uid = pod.UID
			refusal = assign(pod, binding, time.Now())
			return pod, refusal
		}), dryRun, nil)
	switch {
	case refusal != nil:
		return apierrors.NewConflict(corev1.Resource("pods/binding"), name, refusal)
	case storage.IsNotFound(err):
		return apierrors.NewNotFound(corev1.Resource("pods"), name)
	case storage.IsInvalidObj(err), storage.IsConflict(err):
		return apierrors.NewConflict(corev1.Resource("pods/binding"), name, err)
	case err != nil:
		return apierrors.NewInternalError(err)
	}
	if !dryRun {
		noteBind(ctx, r.timeline, uid, genericrequest.NamespaceValue(ctx), name, begun)
	}
	return nil
}

// assign changes pod as binding says, or tells why it cannot.
func assign(pod *corev1.Pod, binding *corev1.Binding, now time.Time) error {
	if pod.DeletionTimestamp != nil {
		return fmt.Errorf("pod %s is being deleted and cannot be assigned to a node", pod.Name)
	}
	if pod.Spec.NodeName != "" {
		return fmt.Errorf("pod %s is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	}
	if len(pod.Spec.SchedulingGates) > 0 {
		return fmt.Errorf("pod %s has non-empty .spec.schedulingGates", pod.Name)
	}
	pod.Spec.NodeName = binding.Target.Name
	if len(binding.Annotations) > 0 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		maps.Copy(pod.Annotations, binding.Annotations)
	}
	pods.SetCondition(&pod.Status, corev1.PodCondition{
		Type:               corev1.PodScheduled,
		Status:             corev1.ConditionTrue,
		ObservedGeneration: pod.Generation,
	}, now)
	return nil
}

func validateBinding(binding *corev1.Binding) field.ErrorList {
	// What a pod has from its creation, or not at all, no scheduler gives it.
	errs := podvalidation.AnnotationsUpdate(binding.Annotations, nil, &corev1.PodSpec{NodeName: binding.Target.Name}, annotations())
	target := field.NewPath("target")
	if kind := binding.Target.Kind; kind != "" && kind != "Node" {
		errs = append(errs, field.NotSupported(target.Child("kind"), kind, []string{"Node"}))
	}
	if binding.Target.Name == "" {
		return append(errs, field.Required(target.Child("name"), "must be the name of the node"))
	}
	for _, msg := range validation.IsDNS1123Subdomain(binding.Target.Name) {
		errs = append(errs, field.Invalid(target.Child("name"), binding.Target.Name, msg))
	}
	return errs
}
