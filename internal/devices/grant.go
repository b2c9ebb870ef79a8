package devices

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/book"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/kit/ordered"
)

// Grant is what a container is started with.
type Grant struct {
	answer.Answer
	// Record is what the container is to carry as its annotation Annotation, so that its devices are known when the ledger is lost.
	Record string
}

// Annotation is the key of the annotation that tells a container's devices.
const Annotation = "monopod.dev/devices"

// Grant returns what a container of an admitted pod is to be started with, each time that it is. It is always what the pod was admitted with:
// a device that has gone, that does not fit its definition any more, or that is other hardware under the old name is an error, and
// never replaced by another. What a source.Lasting has answered in this boot is not looked at again.
//
// Errors: *NotReadyError (an errdefs.ErrUnavailable) when a device is away now; errdefs.ErrNotFound when the container has no grant;
// a *StartError when a source does not let it start.
func (m *Manager) Grant(ctx context.Context, c source.Container) (Grant, error) {
	unlock, err := m.pods.Lock(ctx, c.PodUID)
	if err != nil {
		return Grant{}, fmt.Errorf("devices of %s: another call for this pod is not done: %w", c, err)
	}
	defer unlock()
	if err := m.clerk.settle(c.PodUID); err != nil {
		return Grant{}, err
	}
	pod, ok := m.clerk.record(c.PodUID)
	if _, has := pod.Containers[c.Name]; !ok || !has {
		return Grant{}, fmt.Errorf("%s has no devices on record: the pod was not admitted: %w", c, errdefs.ErrNotFound)
	}
	if pod, err = m.refresh(ctx, c, pod); err != nil {
		return Grant{}, err
	}
	rec := pod.Containers[c.Name]
	if err := m.beforeStart(ctx, c, rec); err != nil {
		return Grant{}, err
	}
	answer, err := rec.Answer()
	if err != nil {
		return Grant{}, fmt.Errorf("%s: %w", c, err)
	}
	text, err := rec.Annotation()
	return Grant{Answer: answer, Record: text}, err
}

// refresh compares what the container has with what there is, and fetches answers of an earlier boot anew.
func (m *Manager) refresh(ctx context.Context, c source.Container, pod book.Record) (book.Record, error) {
	defer m.clerk.retract(c.PodUID)
	w := m.worlds.now()
	rec := pod.Containers[c.Name]
	for resource, g := range ordered.Map(rec.Grants) {
		if g.Lasts(w, m.boot) {
			continue
		}
		now, err := m.usable(w, resource, g)
		if err != nil {
			return pod, err
		}
		rec = rec.WithGrant(resource, now)
	}
	next, err := m.ask(ctx, c.PodUID, book.Record{Namespace: pod.Namespace, Name: pod.Name}.With(map[string]book.Container{c.Name: rec}), false)
	if err != nil {
		return pod, err
	}
	next = pod.With(next.Containers)
	return next, m.clerk.keep(c.PodUID, pod, next)
}

// StartError says that a source does not let a container start, in its words.
type StartError struct {
	Resource string
	Err      error
}

// Error names the resource.
func (e *StartError) Error() string {
	return fmt.Sprintf("%s does not let the container start: %v", e.Resource, e.Err)
}

// Unwrap returns why.
func (e *StartError) Unwrap() error { return e.Err }

// beforeStart has the sources do what is to be done before each start.
func (m *Manager) beforeStart(ctx context.Context, c source.Container, rec book.Container) error {
	for resource, g := range ordered.Map(rec.Grants) {
		starter, ok := m.worlds.named(g.Source).(source.Starter)
		if !ok {
			continue
		}
		required, known := starter.StartRequired(resource)
		if !known {
			required = g.StartRequired
		}
		if !required {
			continue
		}
		switch err := starter.BeforeStart(ctx, c, resource, g.Names()); {
		case err == nil:
		case ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case errdefs.IsUnavailable(err):
			return &NotReadyError{resource, err}
		default:
			return &StartError{resource, err}
		}
	}
	return nil
}
