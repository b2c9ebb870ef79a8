package devices

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
)

// Grant is what a container is started with.
type Grant struct {
	source.Answer
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
	unlock, err := m.pods.lock(ctx, c.PodUID)
	if err != nil {
		return Grant{}, fmt.Errorf("devices of %s: another call for this pod is not done: %w", c, err)
	}
	defer unlock()
	if err := m.settle(c.PodUID); err != nil {
		return Grant{}, err
	}
	m.mu.Lock()
	pod, ok := m.granted[c.PodUID]
	m.mu.Unlock()
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
	answer, err := rec.answer()
	if err != nil {
		return Grant{}, fmt.Errorf("%s: %w", c, err)
	}
	text, err := rec.annotation()
	return Grant{Answer: answer, Record: text}, err
}

// refresh compares what the container has with what there is, and fetches answers of an earlier boot anew.
func (m *Manager) refresh(ctx context.Context, c source.Container, pod podRecord) (podRecord, error) {
	defer m.unreserve(c.PodUID)
	w := m.worlds.now()
	rec := pod.Containers[c.Name]
	for resource, g := range sorted(rec.Grants) {
		if m.lasts(g) {
			continue
		}
		if g, err := m.usable(w, resource, g); err != nil {
			return pod, err
		} else {
			rec = rec.withGrant(resource, g)
		}
	}
	next, err := m.ask(ctx, c.PodUID, podRecord{Namespace: pod.Namespace, Name: pod.Name}.with(map[string]containerRecord{c.Name: rec}), false)
	if err != nil {
		return pod, err
	}
	next = pod.with(next.Containers)
	return next, m.keep(c.PodUID, pod, next)
}

// usable says whether devices that were granted can be used now, and returns the grant as it stands. The error is a *NotReadyError.
func (m *Manager) usable(w *world, resource string, g resourceGrant) (resourceGrant, error) {
	src, err := m.sourceOf(w, resource, g)
	if err != nil {
		return g, err
	}
	_, lasting := src.(source.Lasting)
	// A record without a boot and of a source whose answers do not last may be of a version that knew no boots: its container may be running.
	inUse := g.Boot == m.boot || g.Boot == "" && !lasting
	g = m.current(w, resource, g)
	for _, had := range g.Devices {
		d, ok := had.find(w.part(g.Source), resource)
		if !ok {
			return g, &NotReadyError{resource, fmt.Errorf("device %q, which this container was granted, is not there any more%s", had.Name, remarks(w, resource))}
		}
		if !slices.Equal(had.Nodes, d.Nodes) {
			return g, &NotReadyError{resource, changed(had, d)}
		}
		if err := m.check(src, d, inUse); err != nil {
			return g, &NotReadyError{resource, fmt.Errorf("a device that this container was granted cannot be used: %w", err)}
		}
	}
	return g, nil
}

// current is a grant as it stands in this boot. The numbers of device nodes are dealt anew in each boot: a device that was granted in an earlier one
// is what its name says now. (Until a plugin has been asked again, what its answer gave in that boot is the best that is known.)
func (m *Manager) current(w *world, resource string, g resourceGrant) resourceGrant {
	if g.Boot == m.boot {
		return g
	}
	devices := slices.Clone(g.Devices)
	for i, had := range devices {
		d, ok := had.find(w.part(g.Source), resource)
		switch {
		case g.Boot != "":
			devices[i].Nodes = d.Nodes // none of one that is not there
		case ok && had.Nodes == nil:
			devices[i].Nodes = d.Nodes // the record is of a version that did not note it
		}
	}
	g.Devices = devices
	return g
}

// lasts says that a grant holds whatever is known of its devices now.
func (m *Manager) lasts(g resourceGrant) bool {
	_, lasting := m.worlds.named(g.Source).(source.Lasting)
	return lasting && g.Answer != nil && g.Boot == m.boot
}

func changed(had grantedDevice, d inventory.Device) error {
	return fmt.Errorf("%s: device %q is %v now, and was %v when this container was granted it: delete the pod, or restore the definition", d.Origin, had.Name, d.Nodes, had.Nodes)
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
func (m *Manager) beforeStart(ctx context.Context, c source.Container, rec containerRecord) error {
	for resource, g := range sorted(rec.Grants) {
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
		switch err := starter.BeforeStart(ctx, c, resource, g.names()); {
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
