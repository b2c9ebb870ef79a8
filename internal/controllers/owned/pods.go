package owned

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

// suffix is how many letters a pod's name has beyond its owner's.
const suffix = 5

// Owner is an object that owns others.
type Owner interface {
	runtime.Object
	metav1.Object
}

// FromTemplate is a pod that an owner wants, still without a name of its own: GenerateName begins it.
func FromTemplate(template *corev1.PodTemplateSpec, owner metav1.Object, kind schema.GroupVersionKind) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), GenerateName: owner.GetName() + "-",
			Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations), Finalizers: slices.Clone(template.Finalizers),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		},
		Spec: *template.Spec.DeepCopy(),
	}
}

// Pods makes and deletes the pods of the owners of a kind.
type Pods struct {
	Client kubernetes.Interface
	Kind   schema.GroupVersionKind
	// Finalizer is one that pods have for as long as they are an owner's; empty: there is none.
	Finalizer string
	// Events are on the owners.
	Events record.EventRecorder
	// Cache is the informer's that shows pods.
	Cache Versioned
	// Unseen is told of what is written.
	Unseen *Unseen
	// Tell tells of what was done, or of what could not be done, in the words of the owner's kind; nil: in those of replica sets.
	Tell func(owner Owner, pod *corev1.Pod, did Deed, err error)
}

// Claim returns the pods of an owner, after it has taken over and let go those that are to change hands (see Claimer). live reads the owner from the API server, not
// from a cache.
func (p Pods) Claim(
	ctx context.Context, owner metav1.Object, claims Claims[*corev1.Pod], live func(context.Context) (metav1.Object, error),
) ([]*corev1.Pod, error) {
	return Claimer[*corev1.Pod]{
		Kind: p.Kind, Finalizer: p.Finalizer, Live: live,
		Patch: func(ctx context.Context, pod string, of types.PatchType, data []byte) (*corev1.Pod, error) {
			return p.Client.CoreV1().Pods(owner.GetNamespace()).Patch(ctx, pod, of, data, metav1.PatchOptions{})
		},
		Wrote: func(version string) { p.Unseen.Wrote(cache.MetaObjectToName(owner), p.Cache, version) },
	}.Claim(ctx, owner, claims)
}

// Deed is what is done about a pod.
type Deed string

// What Pods does.
const (
	Created Deed = "Create"
	Deleted Deed = "Delete"
)

func (p Pods) tell(owner Owner, pod *corev1.Pod, did Deed, err error) {
	switch {
	case p.Tell != nil:
		p.Tell(owner, pod, did, err)
	case err == nil:
		p.Events.Eventf(owner, corev1.EventTypeNormal, "Successful"+string(did), "%sd pod: %s", did, pod.Name)
	default:
		p.Events.Eventf(owner, corev1.EventTypeWarning, "Failed"+string(did), "Error %sing: %v", strings.TrimSuffix(strings.ToLower(string(did)), "e"), err)
	}
}

// Create creates a pod. One without a name gets one of its GenerateName, here and not at the API server: when an answer is lost, it can be asked whether
// the pod is there. In a namespace that is being deleted it does nothing, which is no error.
func (p Pods) Create(ctx context.Context, owner Owner, pod *corev1.Pod) error {
	made, err := p.create(ctx, owner, pod)
	switch {
	case err != nil && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case err != nil:
		p.tell(owner, pod, Created, err)
		return fmt.Errorf("create a pod: %w", err)
	}
	p.Unseen.Wrote(cache.MetaObjectToName(owner), p.Cache, made.ResourceVersion)
	p.tell(owner, made, Created, nil)
	return nil
}

func (p Pods) create(ctx context.Context, owner Owner, pod *corev1.Pod) (*corev1.Pod, error) {
	generate := pod.Name == ""
	client := p.Client.CoreV1().Pods(pod.Namespace)
	for {
		if generate {
			pod.Name = pod.GenerateName[:min(len(pod.GenerateName), validation.DNS1123LabelMaxLength-suffix)] + rand.String(suffix)
		}
		made, err := client.Create(ctx, pod, metav1.CreateOptions{})
		switch {
		case err == nil:
			return made, nil
		case generate && apierrors.IsAlreadyExists(err):
			continue // somebody has that name by chance
		case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsInternalError(err):
			return nil, err // the API server has refused
		}
		// It may have been made all the same.
		if there, lost := client.Get(ctx, pod.Name, metav1.GetOptions{}); lost == nil && metav1.IsControlledBy(there, owner) {
			return there, nil
		}
		return nil, err
	}
}

// Delete deletes a pod of an owner. One that is gone, or that is another one by now, is no error.
func (p Pods) Delete(ctx context.Context, owner Owner, pod *corev1.Pod) error {
	name := cache.MetaObjectToName(owner)
	p.Unseen.Goes(name, pod.UID)
	err := p.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		p.Unseen.Went(pod.UID)
		return nil
	case err != nil:
		p.Unseen.Went(pod.UID)
		p.tell(owner, pod, Deleted, err)
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	p.tell(owner, pod, Deleted, nil)
	return nil
}
