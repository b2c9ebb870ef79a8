package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/devices/topology"
)

// Admit gives a pod the devices of all its containers, or none. It is idempotent by pod: asked again it answers for what the pod was given
// already, and a retry after a time-out waits for the first attempt. A pod that is held is to ask again when a subscription ticks; as long
// as it is not released, it keeps its place before those that came later.
//
// What is given may still be on its way to the disk when Admit returns: nobody else is given it, but no container is to have it before Grant has
// returned, which waits for that.
//
// Errors are no verdict: errdefs.ErrInvalidArgument for a request that makes no sense; errdefs.ErrFailedPrecondition when a container has a
// grant and now asks for something else; what the disk or the context says.
func (m *Manager) Admit(ctx context.Context, req PodRequest) (Verdict, error) {
	needs, err := req.needs()
	if err != nil {
		return Verdict{}, err
	}
	unlock, err := m.pods.Lock(ctx, req.UID)
	if err != nil {
		return Verdict{}, fmt.Errorf("devices of %s: another call for this pod is not done: %w", req, err)
	}
	defer unlock()
	err = m.admit(ctx, req, needs)
	var refused *source.RefusedError
	var wait *NotReadyError
	var unaligned *topology.AffinityError
	switch {
	case errors.As(err, &unaligned):
		return Verdict{Phase: Failed, Reason: unaligned.Reason(), Message: unaligned.Message() + ": " + err.Error()}, nil
	case errors.As(err, &refused):
		return Verdict{Phase: Failed, Reason: ReasonRefused, Message: err.Error()}, nil
	case errors.As(err, &wait):
		return held(err), nil
	case err != nil:
		return Verdict{}, err
	}
	return Verdict{Phase: Admitted}, nil
}

// mostOthers bounds how many devices of plugins are tried whose hardware turns out to be somebody's, before the pod waits for one of them.
const mostOthers = 64

func (m *Manager) admit(ctx context.Context, req PodRequest, needs []need) error {
	if err := m.settle(req.UID); err != nil {
		return err
	}
	err := m.give(ctx, req, needs)
	for range mostOthers {
		var taken *takenError
		if !errors.As(err, &taken) || ctx.Err() != nil {
			return err
		}
		key, known := taken.device()
		if !known {
			return err
		}
		if err := m.takeBack(req, key, taken.grant.Nodes); err != nil {
			return err
		}
		err = m.give(ctx, req, needs)
	}
	return err
}

// takeBack notes what a device is that turned out to be somebody's hardware, and takes back what the pod's containers were to have and have no answer for:
// others are chosen in its place.
func (m *Manager) takeBack(req PodRequest, key deviceKey, nodes []string) error {
	m.mu.Lock()
	m.learnt[key] = nodes
	pod := m.granted[req.UID]
	m.mu.Unlock()
	left := maps.Clone(pod.Containers)
	maps.DeleteFunc(left, func(_ string, c containerRecord) bool {
		for _, g := range c.Grants {
			if g.Answer == nil && g.Boot == "" {
				return true
			}
		}
		return false
	})
	m.log.Info("a device is hardware that another pod has by another resource; others are tried", "resource", key.resource, "device", key.name, "nodes", nodes, "pod", req.Namespace+"/"+req.Name)
	_, err := m.keepOf(req, pod, left)
	return err
}

// give gives the pod what it lacks.
func (m *Manager) give(ctx context.Context, req PodRequest, needs []need) error {
	m.mu.Lock()
	before := m.granted[req.UID]
	m.mu.Unlock()
	before, err := m.withdraw(req, before)
	if err != nil {
		return err
	}
	missing, err := missingIn(before, req, needs)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		if err := m.reserve(ctx, req, missing); err != nil {
			return err
		}
		if written, err := m.commit(ctx, req); err != nil || !written {
			return err
		}
	}
	return m.prepare(ctx, req, len(before.Containers) == 0)
}

// missingIn returns the needs for which the pod has no grant.
func missingIn(rec podRecord, req PodRequest, needs []need) (missing []need, err error) {
	for name, c := range rec.Containers {
		var want map[string]int
		if i := slices.IndexFunc(needs, func(n need) bool { return n.name == name }); i >= 0 {
			want = needs[i].want
		}
		if had := c.wants(); !maps.Equal(want, had) {
			return nil, fmt.Errorf("container %q of %s was granted %v and now asks for %v: release the pod's devices first: %w", name, req, had, want, errdefs.ErrFailedPrecondition)
		}
	}
	for _, n := range needs {
		if _, ok := rec.Containers[n.name]; !ok {
			missing = append(missing, n)
		}
	}
	return missing, nil
}

// commit makes the reservation a grant, on disk first. Sources that are asked without effect are asked before that, which spares a write. Where
// nobody else is to be asked it returns before the disk has it, with written false: the pod's sandbox can be made meanwhile.
func (m *Manager) commit(ctx context.Context, req PodRequest) (written bool, err error) {
	m.mu.Lock()
	pod := m.granted[req.UID].with(m.reserved[req.UID].Containers)
	m.mu.Unlock()
	pod.Namespace, pod.Name = req.Namespace, req.Name
	if pod, err = m.ask(ctx, req.UID, pod, true); err != nil {
		m.unreserve(req.UID)
		return false, err
	}
	m.mu.Lock()
	m.unwritten[req.UID], m.reserved[req.UID] = pod, pod
	m.mu.Unlock()
	if pod.answered(m.boot) && m.later(func() { m.settleLater(context.WithoutCancel(ctx), req.UID) }) {
		return false, nil
	}
	if err := m.settle(req.UID); err != nil {
		m.unreserve(req.UID)
		return false, err
	}
	return true, nil
}

// prepare has the sources make ready what is not yet. With an error that is a refusal, and fresh, nothing is left of the grant.
func (m *Manager) prepare(ctx context.Context, req PodRequest, fresh bool) error {
	m.mu.Lock()
	rec := m.granted[req.UID]
	m.mu.Unlock()
	defer m.unreserve(req.UID)
	if !fresh {
		if err := m.stillThere(rec); err != nil {
			return err
		}
	}
	next, err := m.ask(ctx, req.UID, rec, false)
	var refused *source.RefusedError
	if errors.As(err, &refused) && fresh {
		return errors.Join(err, m.drop(req.UID))
	}
	if err != nil {
		return err
	}
	return m.keep(req.UID, rec, next)
}
