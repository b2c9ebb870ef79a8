package admission

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Reader reads the objects of a resource that are of the cluster.
type Reader interface {
	rest.Getter
	rest.Lister
}

// Priority gives a pod the priority, and the preemption policy, of the class that it names, else of the class that is the default, else none. It lets one
// class be the default, and the system's classes stay.
type Priority struct {
	// Classes are the priority classes; System are the names of the system's own.
	Classes Reader
	System  []string
}

var (
	_ admission.MutationInterface   = Priority{}
	_ admission.ValidationInterface = Priority{}
)

var (
	priorityClasses = schedulingv1.Resource("priorityclasses")
)

// Handles implements admission.Interface.
func (Priority) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update || op == admission.Delete
}

// Admit implements admission.MutationInterface.
func (p Priority) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := podOf(a)
	if !ok {
		return nil
	}
	if a.GetOperation() == admission.Create {
		return p.give(ctx, a, pod)
	}
	// A client that does not know these fields keeps them. That nobody changes them, the pods' own rules say.
	if old, ok := a.GetOldObject().(*corev1.Pod); ok && a.GetOperation() == admission.Update {
		if pod.Spec.Priority == nil {
			pod.Spec.Priority = old.Spec.Priority
		}
		if pod.Spec.PreemptionPolicy == nil {
			pod.Spec.PreemptionPolicy = old.Spec.PreemptionPolicy
		}
	}
	return nil
}

// podOf is the pod that a request is about as a whole.
func podOf(a admission.Attributes) (*corev1.Pod, bool) {
	if a.GetResource().GroupResource() != corev1.Resource("pods") || a.GetSubresource() != "" {
		return nil, false
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	return pod, ok
}

func (p Priority) give(ctx context.Context, a admission.Attributes, pod *corev1.Pod) error {
	priority, policy := int32(0), corev1.PreemptLowerPriority
	class, err := p.classOf(ctx, a, pod.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	if class != nil {
		pod.Spec.PriorityClassName, priority = class.Name, class.Value
		if class.PreemptionPolicy != nil {
			policy = *class.PreemptionPolicy
		}
	}
	const refusal = "the %s value of %s (%v) must not be provided in pod spec; priority admission controller computed %v from the given PriorityClass name"
	if given := pod.Spec.Priority; given != nil && *given != priority {
		return admission.NewForbidden(a, fmt.Errorf(refusal, "integer", "priority", *given, priority))
	}
	if given := pod.Spec.PreemptionPolicy; given != nil && *given != policy {
		return admission.NewForbidden(a, fmt.Errorf(refusal, "string", "PreemptionPolicy", *given, policy))
	}
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = &priority, &policy
	return nil
}

// classOf is the class of a name, and without one that which is the default; nil: there is none.
func (p Priority) classOf(ctx context.Context, a admission.Attributes, name string) (*schedulingv1.PriorityClass, error) {
	if name == "" {
		return p.defaultClass(ctx)
	}
	obj, err := p.Classes.Get(ctx, name, &metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, admission.NewForbidden(a, fmt.Errorf("no PriorityClass with name %s was found", name))
	case err != nil:
		return nil, apierrors.NewInternalError(fmt.Errorf("read PriorityClass %s: %w", name, err))
	}
	return obj.(*schedulingv1.PriorityClass), nil
}

// defaultClass is the lowest of the default classes, of which there may be two where two came in at once.
func (p Priority) defaultClass(ctx context.Context) (found *schedulingv1.PriorityClass, err error) {
	list, err := p.Classes.List(ctx, &metainternalversion.ListOptions{ResourceVersion: "0"}) // from the cache
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("list the PriorityClasses: %w", err))
	}
	all := list.(*schedulingv1.PriorityClassList).Items
	for i := range all {
		if c := &all[i]; c.GlobalDefault && (found == nil || c.Value < found.Value) {
			found = c
		}
	}
	return found, nil
}

// Validate implements admission.ValidationInterface.
func (p Priority) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != priorityClasses || a.GetSubresource() != "" {
		return nil
	}
	if a.GetOperation() == admission.Delete {
		if old, ok := a.GetOldObject().(*schedulingv1.PriorityClass); ok && slices.Contains(p.System, old.Name) {
			return apierrors.NewForbidden(priorityClasses, old.Name, fmt.Errorf("this is a system priority class and cannot be deleted"))
		}
		return nil
	}
	class, ok := a.GetObject().(*schedulingv1.PriorityClass)
	if !ok || !class.GlobalDefault {
		return nil
	}
	other, err := p.defaultClass(ctx)
	if err != nil {
		return err
	}
	if other != nil && other.Name != class.Name {
		return admission.NewForbidden(a, fmt.Errorf("PriorityClass %s is already marked as default. Only one default can exist", other.Name))
	}
	return nil
}
