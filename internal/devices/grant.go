package devices

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/failpoint"
)

// GrantRequest asks for the devices of one container.
type GrantRequest struct {
	PodUID, PodNamespace, PodName string
	Container                     string
	// Init says that the container runs to its end before any that asks after it: its devices may then go to those as
	// well. A restartable init container (a sidecar) is not one.
	Init bool
	// Resources are the extended resources of the container, by name; entries of 0 ask for nothing.
	Resources map[string]int64
}

// Grant is what a container was given.
type Grant struct {
	// CDIDevices are fully qualified CDI names, "vendor.com/class=name", for CRI's ContainerConfig.CDIDevices.
	CDIDevices []string
}

// Grant gives a container its devices. It is idempotent by pod and container: asked again it answers with the same
// devices, and a retry after a time-out waits for the first attempt.
//
// Errors: *NotReadyError (an errdefs.ErrUnavailable) when a resource is unknown or short, or a granted device is away;
// errdefs.ErrInvalidArgument for a request that makes no sense; errdefs.ErrFailedPrecondition when the container has
// a grant and now asks for something else.
func (m *Manager) Grant(ctx context.Context, req GrantRequest) (Grant, error) {
	want, err := wanted(req)
	if err != nil {
		return Grant{}, err
	}
	unlock, err := m.pods.lock(ctx, req.PodUID)
	if err != nil {
		return Grant{}, fmt.Errorf("devices of %s: another call for this pod is not done: %w", req, err)
	}
	defer unlock()

	m.mu.Lock()
	has, ok := m.granted[req.PodUID].Containers[req.Container]
	m.mu.Unlock()
	switch {
	case ok:
		return m.grantAgain(req, want, has)
	case len(want) == 0:
		return Grant{}, nil
	default:
		return m.grantNew(req, want)
	}
}

// String names the container that asks.
func (r GrantRequest) String() string {
	return fmt.Sprintf("container %q of pod %s/%s (%s)", r.Container, r.PodNamespace, r.PodName, r.PodUID)
}

// wanted checks a request, and returns what it asks of each resource.
func wanted(req GrantRequest) (map[string]int, error) {
	if req.PodUID == "" || req.Container == "" {
		return nil, fmt.Errorf("a grant needs a pod UID and a container, got %s: %w", req, errdefs.ErrInvalidArgument)
	}
	want := map[string]int{}
	for resource, n := range req.Resources {
		switch {
		case !strings.Contains(resource, "/"):
			return nil, fmt.Errorf("%q in the devices of %s is not an extended resource (domain/name): %w", resource, req, errdefs.ErrInvalidArgument)
		case n < 0 || n > math.MaxInt32:
			return nil, fmt.Errorf("%s: %d in the devices of %s is not a number of devices: %w", resource, n, req, errdefs.ErrInvalidArgument)
		case n > 0:
			want[resource] = int(n)
		}
	}
	return want, nil
}

// grantAgain answers for a container that has a grant: with that, or not at all.
func (m *Manager) grantAgain(req GrantRequest, want map[string]int, has containerRecord) (Grant, error) {
	had := map[string]int{}
	for resource, names := range has.Devices {
		had[resource] = len(names)
	}
	if !maps.Equal(want, had) {
		return Grant{}, fmt.Errorf("%s was granted %v and now asks for %v: release the pod's devices first: %w", req, had, want, errdefs.ErrFailedPrecondition)
	}
	snap := m.source.Snapshot()
	for resource, names := range sorted(has.Devices) {
		for _, name := range names {
			d, ok := snap.Find(resource, name)
			if !ok {
				return Grant{}, &NotReadyError{resource, fmt.Errorf("device %q, which this container was granted, is not there any more%s", name, remarks(snap, resource))}
			}
			if err := m.check(d, name, true); err != nil {
				return Grant{}, &NotReadyError{resource, fmt.Errorf("a device that this container was granted cannot be used: %w", err)}
			}
		}
	}
	return has.grant(), nil
}

// grantNew chooses devices, and makes the choice durable. A device that turns out not to be usable is left out, and the
// choice is made again.
func (m *Manager) grantNew(req GrantRequest, want map[string]int) (Grant, error) {
	unfit := map[string]map[string]string{}
	for {
		rec, snap, err := m.reserve(req, want, unfit)
		if err != nil {
			return Grant{}, err
		}
		if m.checkAll(snap, rec, unfit) {
			return m.commit(req, rec)
		}
		m.unreserve(req)
	}
}

// reserve chooses the devices and notes them, so that nobody else is given them meanwhile.
func (m *Manager) reserve(req GrantRequest, want map[string]int, unfit map[string]map[string]string) (containerRecord, *inventory.Snapshot, error) {
	snap := m.source.Snapshot()
	m.mu.Lock()
	defer m.mu.Unlock()
	rec := containerRecord{Devices: map[string][]string{}, Init: req.Init, GrantedAt: m.now().UTC()}
	for resource, n := range sorted(want) {
		if m.unreadable != nil {
			return rec, nil, &NotReadyError{resource, fmt.Errorf("which devices are in use is not known for sure until the pod of a damaged ledger record is deleted: %w", m.unreadable)}
		}
		pool := alloc.Pool{Devices: snap.Of(resource), Taken: m.taken(req.PodUID, resource), Unfit: unfit[resource]}
		names, err := alloc.Choose(pool, alloc.Request{Count: n, Prefer: m.granted[req.PodUID].handedDown(resource)})
		if err != nil {
			m.turnedAway = m.turnedAway || len(m.reserved) > 0
			return rec, nil, m.notReady(snap, resource, pool, err)
		}
		rec.Devices[resource] = names
	}
	m.reserved[req.PodUID] = rec
	return rec, snap, nil
}

// taken lists the devices of a resource that a container of the pod cannot have. m.mu is held.
func (m *Manager) taken(podUID, resource string) []string {
	var names []string
	for uid, pod := range m.granted {
		names = append(names, pod.held(resource, uid == podUID)...)
	}
	for _, rec := range m.reserved {
		names = append(names, rec.Devices[resource]...)
	}
	return names
}

// notReady explains a shortage. m.mu is held.
func (m *Manager) notReady(snap *inventory.Snapshot, resource string, pool alloc.Pool, shortage error) error {
	if !slices.Contains(snap.Resources, resource) {
		return &NotReadyError{resource, fmt.Errorf("no device of this resource is defined (looked in %s)%s", strings.Join(snap.Places, ", "), remarks(snap, resource))}
	}
	var faults []string
	for _, name := range slices.SortedFunc(maps.Keys(pool.Unfit), inventory.CompareNames) {
		faults = append(faults, "; "+pool.Unfit[name])
	}
	return &NotReadyError{resource, fmt.Errorf("%w%s%s", shortage, strings.Join(faults, ""), remarks(snap, resource))}
}

// remarks are the problems that may be why a resource lacks a device: its own, and those of files whose content is not
// known.
func remarks(snap *inventory.Snapshot, resource string) string {
	var text strings.Builder
	for _, p := range snap.Problems {
		if p.Resource == resource || p.Resource == "" {
			text.WriteString("; " + p.String())
		}
	}
	return text.String()
}

// checkAll checks chosen devices, and notes in unfit those that cannot be used.
func (m *Manager) checkAll(snap *inventory.Snapshot, rec containerRecord, unfit map[string]map[string]string) bool {
	ok := true
	for resource, names := range rec.Devices {
		for _, name := range names {
			d, found := snap.Find(resource, name)
			if !found {
				continue // the choice was made from this snapshot
			}
			if err := m.check(d, name, false); err != nil {
				ok = false
				if unfit[resource] == nil {
					unfit[resource] = map[string]string{}
				}
				unfit[resource][name] = err.Error()
			}
		}
	}
	return ok
}

// check asks the source, and remembers the answer for Problems.
func (m *Manager) check(d inventory.Device, name string, inUse bool) error {
	err := m.source.Check(d.Resource, name, inUse)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.unfit, deviceKey{d.Resource, d.Name})
	} else {
		m.unfit[deviceKey{d.Resource, d.Name}] = err
	}
	return err
}

// unreserve takes a reservation back. There is at most one of a pod, because calls for one pod are serialized.
func (m *Manager) unreserve(req GrantRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.reserved, req.PodUID)
	if m.turnedAway {
		m.turnedAway = false
		m.tick()
	}
}

// commit makes the reservation durable, and then a grant.
func (m *Manager) commit(req GrantRequest, rec containerRecord) (Grant, error) {
	m.mu.Lock()
	pod := m.granted[req.PodUID].with(req.Container, rec)
	m.mu.Unlock()
	pod.Namespace, pod.Name = req.PodNamespace, req.PodName

	err := failpoint.Hit("devices/grant/before-persist")
	if err == nil {
		err = m.ledger.put(req.PodUID, pod)
	}
	if err != nil {
		m.unreserve(req)
		return Grant{}, fmt.Errorf("persist the devices of %s: %w", req, err)
	}

	m.mu.Lock()
	m.granted[req.PodUID] = pod
	delete(m.reserved, req.PodUID)
	m.mu.Unlock()
	if err := failpoint.Hit("devices/grant/persisted"); err != nil {
		return Grant{}, err
	}
	g := rec.grant()
	m.log.Info("devices granted", "pod", req.PodNamespace+"/"+req.PodName, "podUID", req.PodUID, "container", req.Container, "devices", g.CDIDevices)
	return g, nil
}

// grant is the record as an answer, its devices by resource and then as they were chosen.
func (c containerRecord) grant() Grant {
	var g Grant
	for resource, names := range sorted(c.Devices) {
		for _, name := range names {
			g.CDIDevices = append(g.CDIDevices, inventory.CDIName(resource, name))
		}
	}
	return g
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
