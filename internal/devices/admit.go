package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/book"
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
func (m *Manager) Admit(ctx context.Context, pod PodRequest) (Verdict, error) {
	req, err := pod.asks()
	if err != nil {
		return Verdict{}, err
	}
	unlock, err := m.pods.Lock(ctx, req.UID)
	if err != nil {
		return Verdict{}, fmt.Errorf("devices of %s: another call for this pod is not done: %w", req, err)
	}
	defer unlock()
	err = m.admit(ctx, req)
	var refused *answer.RefusedError
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

func (m *Manager) admit(ctx context.Context, req book.Request) error {
	if err := m.clerk.settle(req.UID); err != nil {
		return err
	}
	err := m.give(ctx, req)
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
		err = m.give(ctx, req)
	}
	return err
}

// takeBack notes what a device is that turned out to be somebody's hardware, and takes back what the pod's containers were to have and have no answer for:
// others are chosen in its place.
func (m *Manager) takeBack(req book.Request, key book.Key, nodes []string) error {
	m.clerk.with(func(b *book.Book) { b.NoteHardware(key, nodes) })
	pod, _ := m.clerk.record(req.UID)
	left := maps.Clone(pod.Containers)
	maps.DeleteFunc(left, func(_ string, c book.Container) bool {
		for _, g := range c.Grants {
			if g.Answer == nil && g.Boot == "" {
				return true
			}
		}
		return false
	})
	m.log.Info("a device is hardware that another pod has by another resource; others are tried", "resource", key.Resource, "device", key.Name, "nodes", nodes, "pod", req.Namespace+"/"+req.Name)
	_, err := m.clerk.keepOf(req.UID, pod, left)
	return err
}

// give gives the pod what it lacks.
func (m *Manager) give(ctx context.Context, req book.Request) error {
	before, _ := m.clerk.record(req.UID)
	before, err := m.withdraw(req, before)
	if err != nil {
		return err
	}
	if req.Needs, err = missingIn(before, req); err != nil {
		return err
	}
	if len(req.Needs) > 0 {
		if err := m.reserve(ctx, req); err != nil {
			return err
		}
		if written, err := m.commit(ctx, req); err != nil || !written {
			return err
		}
	}
	return m.prepare(ctx, req.UID, len(before.Containers) == 0)
}

// missingIn returns the needs for which the pod has no grant.
func missingIn(rec book.Record, req book.Request) (missing []book.Need, err error) {
	for name, c := range rec.Containers {
		var want map[string]int
		if i := slices.IndexFunc(req.Needs, func(n book.Need) bool { return n.Container == name }); i >= 0 {
			want = req.Needs[i].Want
		}
		if had := c.Wants(); !maps.Equal(want, had) {
			return nil, fmt.Errorf("container %q of %s was granted %v and now asks for %v: release the pod's devices first: %w", name, req, had, want, errdefs.ErrFailedPrecondition)
		}
	}
	for _, n := range req.Needs {
		if _, ok := rec.Containers[n.Container]; !ok {
			missing = append(missing, n)
		}
	}
	return missing, nil
}

// reserve has devices chosen for the containers, so that nobody else is given them meanwhile. A device that turns out not to be usable is left
// out, and the choice is made again.
func (m *Manager) reserve(ctx context.Context, req book.Request) error {
	advice := book.Advice{Preferred: map[book.Place][]string{}, Unfit: map[book.Key]string{}}
	for {
		w := m.worlds.now()
		req.At = m.now().UTC()
		d := m.clerk.decide(w, req, advice)
		switch {
		case d.Wait != nil:
			return waitsFor(d.Wait)
		case d.Refusal != nil:
			return d.Refusal
		case d.Question != nil:
			names := m.prefer(ctx, d.Question)
			if err := ctx.Err(); err != nil {
				m.clerk.retract(req.UID)
				return err
			}
			advice.Preferred[d.Question.Place] = names
		case m.checkAll(w, d.Grants, advice.Unfit):
			return nil
		}
	}
}

// checkAll checks chosen devices, and notes in unfit those that cannot be used.
func (m *Manager) checkAll(w *book.World, chosen map[string]book.Container, unfit map[book.Key]string) bool {
	ok := true
	for _, c := range chosen {
		for resource, g := range c.Grants {
			for _, d := range g.Known(w, resource) {
				if err := m.checks.check(m.worlds.named(g.Source), d, false); err != nil {
					ok = false
					unfit[book.KeyOf(d)] = err.Error()
				}
			}
		}
	}
	return ok
}

// commit makes what was chosen a grant, on disk first. Sources that are asked without effect are asked before that, which spares a write. Where
// nobody else is to be asked it returns before the disk has it, with written false: the pod's sandbox can be made meanwhile.
func (m *Manager) commit(ctx context.Context, req book.Request) (written bool, err error) {
	var pod book.Record
	m.clerk.with(func(b *book.Book) { pod = b.Whole(req.UID) })
	if pod, err = m.ask(ctx, req.UID, pod, true); err != nil {
		m.clerk.retract(req.UID)
		return false, err
	}
	m.clerk.with(func(b *book.Book) { err = b.Promise(req.UID, pod) })
	if err != nil {
		m.clerk.retract(req.UID)
		return false, err
	}
	if pod.Answered(m.boot) && m.behind.later(func() { m.settleLater(context.WithoutCancel(ctx), req.UID) }) {
		return false, nil
	}
	if err := m.clerk.settle(req.UID); err != nil {
		m.clerk.retract(req.UID)
		return false, err
	}
	return true, nil
}

// settleLater puts a grant on disk for one who has not got the pod's lock. What fails is tried again, and told, when the pod's devices are asked for.
func (m *Manager) settleLater(ctx context.Context, uid string) {
	unlock, err := m.pods.Lock(ctx, uid)
	if err != nil {
		return
	}
	defer unlock()
	if err := m.clerk.settle(uid); err != nil {
		m.log.Warn("devices granted, and not on record yet; no container gets them before they are", "podUID", uid, "error", err)
	}
}

// prepare has the sources make ready what is not yet. With an error that is a refusal, and fresh, nothing is left of the grant.
func (m *Manager) prepare(ctx context.Context, uid string, fresh bool) error {
	rec, _ := m.clerk.record(uid)
	defer m.clerk.retract(uid)
	if !fresh {
		if err := m.stillThere(rec); err != nil {
			return err
		}
	}
	next, err := m.ask(ctx, uid, rec, false)
	var refused *answer.RefusedError
	if errors.As(err, &refused) && fresh {
		return errors.Join(err, m.clerk.drop(uid))
	}
	if err != nil {
		return err
	}
	return m.clerk.keep(uid, rec, next)
}
