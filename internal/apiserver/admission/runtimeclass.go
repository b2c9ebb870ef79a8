package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"
)

// RuntimeClass gives a pod what the runtime class says that it names: what it is reckoned to need beside its containers, and on which nodes it can be.
type RuntimeClass struct {
	// Classes are the runtime classes.
	Classes rest.Getter
}

var _ admission.MutationInterface = RuntimeClass{}

// Handles implements admission.Interface.
func (RuntimeClass) Handles(op admission.Operation) bool { return op == admission.Create }

// Admit implements admission.MutationInterface.
func (r RuntimeClass) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := podOf(a)
	if !ok {
		return nil
	}
	name := pod.Spec.RuntimeClassName
	if name == nil || *name == "" {
		if len(pod.Spec.Overhead) > 0 {
			return admission.NewForbidden(a, errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"))
		}
		return nil
	}
	obj, err := r.Classes.Get(ctx, *name, &metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return admission.NewForbidden(a, fmt.Errorf("pod rejected: RuntimeClass %q not found", *name))
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("read RuntimeClass %s: %w", *name, err))
	}
	class := obj.(*nodev1.RuntimeClass)
	if err := giveOverhead(pod, class); err != nil {
		return admission.NewForbidden(a, err)
	}
	if err := giveScheduling(pod, class.Scheduling); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

func giveOverhead(pod *corev1.Pod, class *nodev1.RuntimeClass) error {
	var overhead corev1.ResourceList
	if class.Overhead != nil {
		overhead = class.Overhead.PodFixed
	}
	switch {
	case len(overhead) == 0 && len(pod.Spec.Overhead) > 0:
		return errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
	case len(pod.Spec.Overhead) > 0 && !apiequality.Semantic.DeepEqual(pod.Spec.Overhead, overhead):
		return errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
	}
	pod.Spec.Overhead = overhead.DeepCopy()
	return nil
}

func giveScheduling(pod *corev1.Pod, s *nodev1.Scheduling) error {
	if s == nil {
		return nil
	}
	selector := maps.Clone(pod.Spec.NodeSelector)
	for _, key := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		value := s.NodeSelector[key]
		if given, ok := selector[key]; ok && given != value {
			return fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, value, key, given)
		}
		if selector == nil {
			selector = map[string]string{}
		}
		selector[key] = value
	}
	pod.Spec.NodeSelector = selector
	for i := range s.Tolerations {
		if t := &s.Tolerations[i]; !slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool { return apiequality.Semantic.DeepEqual(o, *t) }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, *t.DeepCopy())
		}
	}
	return nil
}
