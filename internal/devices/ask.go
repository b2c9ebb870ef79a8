package devices

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/book"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/kit/ordered"
)

// ask returns the record with the answers that it lacks; effectless: only of sources that are asked without effect. Any error but a
// refusal is a *NotReadyError.
func (m *Manager) ask(ctx context.Context, uid string, rec book.Record, effectless bool) (book.Record, error) {
	w := m.worlds.now()
	next := map[string]book.Container{}
	for name, c := range ordered.Map(rec.Containers) {
		of := source.Container{PodUID: uid, PodNamespace: rec.Namespace, PodName: rec.Name, Name: name}
		for resource, g := range ordered.Map(c.Grants) {
			if g.AnsweredIn(m.boot) {
				continue
			}
			src, err := m.sourceOf(w, resource, g)
			if err != nil {
				return rec, err
			}
			if _, ok := src.(source.Effectless); effectless && !ok {
				continue
			}
			if g, err = m.askOne(ctx, w, src, of, resource, g); err != nil {
				return rec, err
			}
			c = c.WithGrant(resource, g)
		}
		if _, err := c.Answer(); err != nil {
			return rec, fmt.Errorf("container %q: %w", name, err)
		}
		next[name] = c
	}
	return rec.With(next), nil
}

// askOne returns a grant with its source's answer.
func (m *Manager) askOne(ctx context.Context, w *book.World, src source.Source, of source.Container, resource string, g book.Grant) (book.Grant, error) {
	var wait *book.Wait
	if m.clerk.with(func(b *book.Book) { g, wait = b.Identify(w, of.PodUID, resource, g) }); wait != nil {
		return g, waitsFor(wait)
	}
	a, err := src.Prepare(ctx, of, resource, g.Names())
	if err != nil {
		return g, mayPass(resource, err)
	}
	fresh := g.Boot == ""
	g.Answer, g.Boot = &a, m.boot
	if starter, ok := src.(source.Starter); ok {
		g.StartRequired, _ = starter.StartRequired(resource)
	}
	g, err = m.claim(of.PodUID, resource, g)
	if taken := (*takenError)(nil); errors.As(err, &taken) && !fresh {
		err = taken.NotReadyError // what it had before the machine was restarted it has to have again
	}
	return g, err
}

// claim notes which hardware is behind a new answer of a source that does not tell it device by device, if no other source has given it to
// somebody.
func (m *Manager) claim(uid, resource string, g book.Grant) (book.Grant, error) {
	if slices.ContainsFunc(g.Devices, func(d book.Device) bool { return len(d.Nodes) > 0 }) {
		return g, nil
	}
	w := m.worlds.now()
	g.Nodes = nil
	for _, s := range m.worlds.sources {
		if id, ok := s.(source.Identifier); ok && s.Name() != g.Source {
			g.Nodes = slices.Concat(g.Nodes, id.Identify(*g.Answer))
		}
	}
	if len(g.Nodes) == 0 {
		return g, nil
	}
	slices.Sort(g.Nodes)
	g.Nodes = slices.Compact(g.Nodes)
	var wait *book.Wait
	if m.clerk.with(func(b *book.Book) { wait = b.Claim(w, uid, resource, g) }); wait != nil {
		return g, &takenError{resource, g, &NotReadyError{wait.Resource, wait.Err}}
	}
	return g, nil
}

// takenError says that a source's answer gives what a pod has by another resource.
type takenError struct {
	resource string
	grant    book.Grant // with the nodes of the answer
	*NotReadyError
}

// Unwrap makes it the *NotReadyError that it is.
func (e *takenError) Unwrap() error { return e.NotReadyError }

// device is the one that the hardware is, if that is known.
func (e *takenError) device() (key book.Key, known bool) {
	if len(e.grant.Devices) != 1 {
		return book.Key{}, false
	}
	return book.Key{Resource: e.resource, Name: e.grant.Devices[0].Name}, true
}

// prefer asks a source for its advice; none of one that has gone meanwhile.
func (m *Manager) prefer(ctx context.Context, q *book.Question) []string {
	if adviser, ok := m.worlds.named(q.Source).(source.Adviser); ok {
		return adviser.Prefer(ctx, q.Resource, q.Available, q.Must, q.N)
	}
	return nil
}

// sourceOf is the source that has given the devices.
func (m *Manager) sourceOf(w *book.World, resource string, g book.Grant) (source.Source, error) {
	if src := m.worlds.named(g.Source); src != nil && slices.Contains(w.Part(g.Source).Resources, resource) {
		return src, nil
	}
	return nil, &NotReadyError{resource, fmt.Errorf("its devices are of source %q, which does not have the resource now%s", g.Source, book.Remarks(w, resource))}
}

// mayPass leaves a refusal as it is, and makes any other error one that may pass.
func mayPass(resource string, err error) error {
	var refused *answer.RefusedError
	if errors.As(err, &refused) {
		return err
	}
	return &NotReadyError{resource, err}
}
