package act

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/userns"
	"monopod.dev/monopod/internal/pods"
)

// ids are the IDs of the host that the pod's user namespace has; nil: it has the host's.
func (p *Pod) ids(ctx context.Context, pod *v1.Pod) (*userns.Range, error) {
	if pods.HostUsers(&pod.Spec) {
		return nil, nil //nolint:nilnil // no range is an answer
	}
	ids, err := p.cfg.Volumes.IDs(ctx, p.uid)
	if err != nil {
		return nil, fmt.Errorf("IDs for the user namespace of the pod: %w", err)
	}
	return &ids, nil
}

// idsBy is ids of a pod with hostUsers: false whose sandbox is to be made by a runtime handler, which has to be able to (empty: the default one). It is asked
// each time: a runtime that does not know what a user namespace is makes the sandbox in the host's, and says nothing. What is said is said as kubelets do.
func (p *Pod) idsBy(ctx context.Context, pod *v1.Pod, handler string) (*userns.Range, error) {
	able, err := p.cfg.Runtime.UserNamespaces(ctx, handler)
	switch {
	case err != nil:
		return nil, fmt.Errorf("can't set `spec.hostUsers: false`, it is not known whether the runtime supports user namespaces: %w", err)
	case able:
		return p.ids(ctx, pod)
	case handler == "":
		return nil, errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	}
	return nil, fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
}
