package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/devices/topology"
	"monopod.dev/monopod/internal/failpoint"
)

// PodRequest asks for the devices of a pod.
type PodRequest struct {
	UID, Namespace, Name string
	// Created is when the pod was: of those that wait for the same devices, the oldest gets them first.
	Created time.Time
	// Containers are in the order in which they start. Those that ask for nothing may be left out.
	Containers []ContainerRequest
}

// ContainerRequest is what one container asks for.
type ContainerRequest struct {
	Name string
	Role alloc.Role
	// Resources are the extended resources of the container, by name; entries of 0 ask for nothing.
	Resources map[string]int64
}

// String names the pod.
func (r PodRequest) String() string {
	return fmt.Sprintf("pod %s/%s (%s)", r.Namespace, r.Name, r.UID)
}

// need is a checked ContainerRequest that asks for something.
type need struct {
	name string
	role alloc.Role
	want map[string]int
}

func (r PodRequest) needs() (needs []need, err error) {
	if r.UID == "" {
		return nil, fmt.Errorf("a pod that asks for devices needs a UID, got %s: %w", r, errdefs.ErrInvalidArgument)
	}
	for _, c := range r.Containers {
		if c.Name == "" || c.Role != alloc.Main && c.Role != alloc.Init && c.Role != alloc.Sidecar {
			return nil, fmt.Errorf("container %q of %s, with role %q: each needs a name and one of the roles: %w", c.Name, r, c.Role, errdefs.ErrInvalidArgument)
		}
		n := need{c.Name, c.Role, map[string]int{}}
		for resource, count := range c.Resources {
			switch {
			case !strings.Contains(resource, "/"):
				return nil, fmt.Errorf("%q in container %q of %s is not an extended resource (domain/name): %w", resource, c.Name, r, errdefs.ErrInvalidArgument)
			case count < 0 || count > math.MaxInt32:
				return nil, fmt.Errorf("%s: %d in container %q of %s is not a number of devices: %w", resource, count, c.Name, r, errdefs.ErrInvalidArgument)
			case count > 0:
				n.want[resource] = int(count)
			}
		}
		if len(n.want) > 0 {
			needs = append(needs, n)
		}
	}
	return needs, nil
}

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
	unlock, err := m.pods.lock(ctx, req.UID)
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

func (m *Manager) admit(ctx context.Context, req PodRequest, needs []need) error {
	if err := m.settle(req.UID); err != nil {
		return err
	}
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

// withdraw takes back what a container was to have and never got, because its source has not answered, and which it cannot get any more: others are
// chosen in its place.
func (m *Manager) withdraw(req PodRequest, pod podRecord) (podRecord, error) {
	w := m.worlds.now()
	left := maps.Clone(pod.Containers)
	maps.DeleteFunc(left, func(_ string, c containerRecord) bool {
		for resource, g := range c.Grants {
			src := m.worlds.named(g.Source)
			if _, lasting := src.(source.Lasting); g.Answer != nil || !lasting || w.of[resource] != src || w.awaits(g.Source, resource) {
				continue
			}
			if _, err := m.usable(w, resource, g); err != nil {
				return true
			}
		}
		return false
	})
	if len(left) == len(pod.Containers) {
		return pod, nil
	}
	m.log.Info("devices that no container has got, and that are not there any more, are taken back", "pod", req.Namespace+"/"+req.Name, "podUID", req.UID)
	if len(left) == 0 {
		return podRecord{}, m.drop(req.UID)
	}
	next := pod
	next.Containers = left
	return next, m.keep(req.UID, pod, next)
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
	later := false
	if pod.answered(m.boot) {
		later = m.later(func() { m.settleLater(req.UID) })
	}
	if later {
		return false, nil
	}
	if err := m.settle(req.UID); err != nil {
		m.unreserve(req.UID)
		return false, err
	}
	return true, nil
}

// later has something done in the background, or not at all: when Run has ended.
func (m *Manager) later(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closing {
		m.writes.Go(f)
	}
	return !m.closing
}

// settleLater is settle for one who has not got the pod's lock. What fails is tried again, and told, when the pod's devices are asked for.
func (m *Manager) settleLater(uid string) {
	unlock, err := m.pods.lock(context.Background(), uid)
	if err != nil {
		return
	}
	defer unlock()
	if err := m.settle(uid); err != nil {
		m.log.Warn("devices granted, and not on record yet; no container gets them before they are", "podUID", uid, "error", err)
	}
}

// settle puts on disk what a pod was given and what is not there yet. The pod's lock is held.
func (m *Manager) settle(uid string) error {
	m.mu.Lock()
	pod, is := m.unwritten[uid]
	m.mu.Unlock()
	if !is {
		return nil
	}
	if err := failpoint.Hit("devices/grant/before-persist"); err != nil {
		return err
	}
	if err := m.ledger.put(uid, pod); err != nil {
		return fmt.Errorf("persist the devices of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	m.mu.Lock()
	m.granted[uid] = pod
	delete(m.reserved, uid)
	delete(m.unwritten, uid)
	waited := m.queue.leave(uid)
	m.mu.Unlock()
	if waited {
		m.subscribers.tick() // for those behind it
	} else {
		m.subscribers.tickWatchers()
	}
	if err := failpoint.Hit("devices/grant/persisted"); err != nil {
		return err
	}
	m.log.Info("devices granted", "pod", pod.Namespace+"/"+pod.Name, "podUID", uid, "devices", pod.summary())
	return nil
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

// stillThere says whether the devices can be used for which the sources are to be asked: what was chosen just now is, what is on record may have gone.
func (m *Manager) stillThere(pod podRecord) error {
	w := m.worlds.now()
	for _, c := range sorted(pod.Containers) {
		for resource, g := range sorted(c.Grants) {
			if g.Answer != nil && g.Boot == m.boot {
				continue
			}
			if _, err := m.usable(w, resource, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// keep puts a record in the place of another one, if it is another.
func (m *Manager) keep(uid string, rec, next podRecord) error {
	if rec.equal(next) {
		return nil
	}
	if err := m.ledger.put(uid, next); err != nil {
		return fmt.Errorf("persist the devices of pod %s/%s: %w", rec.Namespace, rec.Name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.granted[uid] = next
	return nil
}

// ask returns the record with the answers that it lacks; effectless: only of sources that are asked without effect. Any error but a
// refusal is a *NotReadyError.
func (m *Manager) ask(ctx context.Context, uid string, rec podRecord, effectless bool) (podRecord, error) {
	w := m.worlds.now()
	next := map[string]containerRecord{}
	for name, c := range sorted(rec.Containers) {
		for resource, g := range sorted(c.Grants) {
			if g.Answer != nil && g.Boot == m.boot {
				continue
			}
			src, err := m.sourceOf(w, resource, g)
			if err != nil {
				return rec, err
			}
			if _, ok := src.(source.Effectless); effectless && !ok {
				continue
			}
			if g, err = m.identified(w, uid, resource, g); err != nil {
				return rec, err
			}
			a, err := src.Prepare(ctx, source.Container{PodUID: uid, PodNamespace: rec.Namespace, PodName: rec.Name, Name: name}, resource, g.names())
			if err != nil {
				return rec, mayPass(resource, err)
			}
			g.Answer, g.Boot = &a, m.boot
			if starter, ok := src.(source.Starter); ok {
				g.StartRequired, _ = starter.StartRequired(resource)
			}
			if g, err = m.claim(uid, rec, name, resource, g); err != nil {
				return rec, err
			}
			c = c.withGrant(resource, g)
		}
		if _, err := c.answer(); err != nil {
			return rec, fmt.Errorf("container %q: %w", name, err)
		}
		next[name] = c
	}
	return rec.with(next), nil
}

// identified is a grant of an earlier boot that is about to be answered anew, with the hardware that its devices are now, if that is nobody's
// else: its device nodes may have got the numbers of another's.
func (m *Manager) identified(w *world, uid, resource string, g resourceGrant) (resourceGrant, error) {
	g = m.current(w, resource, g)
	if g.Boot == "" || g.Boot == m.boot {
		return g, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var err error
	for _, had := range g.Devices {
		d, ok := had.find(w.part(g.Source), resource)
		if !ok || len(d.Nodes) == 0 {
			continue
		}
		d.ShareOf = had.ShareOf
		m.othersGrants(w, uid, func(pod podRecord, other string, o resourceGrant) {
			held := alloc.NewHeld(w.hardware(other, o)...)
			if w.isForeign(resource, g) && held.Overlays(d.Nodes) || !w.isForeign(resource, g) && held.Excludes(d) {
				err = &NotReadyError{resource, fmt.Errorf("device %q is %s since the machine was restarted, which pod %s/%s has", had.Name, nodes(d.Nodes), pod.Namespace, pod.Name)}
			}
		})
	}
	return g, err
}

// claim notes which hardware is behind a new answer of a source that does not tell it device by device, if no other source has given it to
// somebody. What one source shares between its own devices is its own business. The note is in reserved, until the record is kept.
func (m *Manager) claim(uid string, rec podRecord, container, resource string, g resourceGrant) (resourceGrant, error) {
	if slices.ContainsFunc(g.Devices, func(d grantedDevice) bool { return len(d.Nodes) > 0 }) {
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
	m.mu.Lock()
	defer m.mu.Unlock()
	var holder *podRecord
	m.othersGrants(w, uid, func(pod podRecord, resource string, o resourceGrant) {
		if o.Source != g.Source && alloc.NewHeld(o.hardware(resource)...).Overlays(g.Nodes) {
			holder = &pod
		}
	})
	if holder != nil {
		return g, &NotReadyError{resource, fmt.Errorf("its answer gives %s, which pod %s/%s has by another resource", strings.Join(g.Nodes, ", "), holder.Namespace, holder.Name)}
	}
	claimed := m.reserved[uid].with(map[string]containerRecord{container + " " + resource: {Grants: map[string]resourceGrant{resource: {Source: g.Source, Nodes: g.Nodes}}}})
	claimed.Namespace, claimed.Name = rec.Namespace, rec.Name
	m.reserved[uid] = claimed
	return g, nil
}

// sourceOf is the source that has given the devices.
func (m *Manager) sourceOf(w *world, resource string, g resourceGrant) (source.Source, error) {
	if src := m.worlds.named(g.Source); src != nil && slices.Contains(w.part(g.Source).Resources, resource) {
		return src, nil
	}
	return nil, &NotReadyError{resource, fmt.Errorf("its devices are of source %q, which does not have the resource now%s", g.Source, remarks(w, resource))}
}

// mayPass leaves a refusal as it is, and makes any other error one that may pass.
func mayPass(resource string, err error) error {
	var refused *source.RefusedError
	if errors.As(err, &refused) {
		return err
	}
	return &NotReadyError{resource, err}
}

// sorted ranges over a map in the order of its keys.
func sorted[V any](m map[string]V) func(yield func(string, V) bool) {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
