package act

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"monopod.dev/monopod/internal/agent/userns"
	"monopod.dev/monopod/internal/pods"
)

// RuntimeHandlers knows the runtime's handlers that pods are run by, and what they can.
type RuntimeHandlers struct {
	Kube    kubernetes.Interface
	Runtime HandlerRuntime
	// IDs are the IDs of the host that the pod's user namespace maps its own to; they stay the same as long as the pod is.
	IDs func(ctx context.Context, uid types.UID) (userns.Range, error)
}

// HandlerRuntime says what the runtime can with a handler; empty: with the default one.
type HandlerRuntime interface {
	UserNamespaces(ctx context.Context, handler string) (bool, error)
	RecursiveReadOnly(ctx context.Context, handler string) (bool, error)
}

// of is the runtime's handler that the pod's runtime class names; empty: the default one. The class is asked for each time: its handler never
// changes, but another class may have come by the name.
func (h *RuntimeHandlers) of(ctx context.Context, pod *v1.Pod) (string, error) {
	name := pod.Spec.RuntimeClassName
	if name == nil || *name == "" {
		return "", nil
	}
	class, err := h.Kube.NodeV1().RuntimeClasses().Get(ctx, *name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("RuntimeClass %q: %w", *name, err)
	}
	return class.Handler, nil
}

// recursiveReadOnly says whether mounts of the pod can be made read-only with all that is mounted below them.
func (h *RuntimeHandlers) recursiveReadOnly(ctx context.Context, pod *v1.Pod) (bool, error) {
	handler, err := h.of(ctx, pod)
	if err != nil {
		return false, err
	}
	return h.Runtime.RecursiveReadOnly(ctx, handler)
}

// ids are the IDs of the host that the pod's user namespace has; nil: it has the host's.
func (h *RuntimeHandlers) ids(ctx context.Context, pod *v1.Pod) (*userns.Range, error) {
	if pods.HostUsers(&pod.Spec) {
		return nil, nil // no range is an answer
	}
	ids, err := h.IDs(ctx, pod.UID)
	if err != nil {
		return nil, fmt.Errorf("IDs for the user namespace of the pod: %w", err)
	}
	return &ids, nil
}

// idsBy is ids of a pod whose sandbox is to be made by a handler, which has to be able to where it is not in the host's. It is asked each time: a runtime that
// does not know what a user namespace is makes the sandbox in the host's, and says nothing. What is said is said as kubelets do.
func (h *RuntimeHandlers) idsBy(ctx context.Context, pod *v1.Pod, handler string) (*userns.Range, error) {
	if pods.HostUsers(&pod.Spec) {
		return nil, nil // see ids
	}
	able, err := h.Runtime.UserNamespaces(ctx, handler)
	switch {
	case err != nil:
		return nil, fmt.Errorf("can't set `spec.hostUsers: false`, it is not known whether the runtime supports user namespaces: %w", err)
	case able:
		return h.ids(ctx, pod)
	case handler == "":
		return nil, errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	}
	return nil, fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
}
