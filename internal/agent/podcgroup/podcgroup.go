package podcgroup

import (
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/admit"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/cgroup/place"
	"monopod.dev/monopod/internal/host/systemd"
	"monopod.dev/monopod/internal/pods"
)

// Config says where the cgroups are, and what they depend on.
type Config struct {
	Host *cgroup.Host
	// Root is the node's cgroup, in cgroupfs syntax.
	Root string
	// Driver is the cgroup driver of the runtime.
	Driver func() place.Driver
	// Node is what of the node the resources depend on, Allocatable what all pods may have.
	Node        func() podspec.NodeLimits
	Allocatable func() v1.ResourceList
	// Sums are what the pods of each class have together (admit.Ledger.QOS).
	Sums func() admit.QOSSums
	Log  *slog.Logger
}

// Manager makes and removes the cgroups of pods. It is safe for concurrent use, but for the same pod.
type Manager struct {
	cfg   Config
	sizes []string // of huge pages that can be limited

	mu sync.Mutex // guards what follows, and the cgroups of the classes
	// ready: the cgroups of the classes are there, by the names of this driver.
	ready bool
	names place.Driver
	// written is what those of the classes were last set to; nil: nothing.
	written *admit.QOSSums
	told    bool
}

// New makes a manager; it changes nothing on the host.
func New(cfg Config) *Manager { return &Manager{cfg: cfg, sizes: cfg.Host.HugepageSizes()} }

// driver is the runtime's, or nil where it cannot be done as it does it.
func (m *Manager) driver() (driver, place.Pods) {
	names := place.Pods{Root: m.cfg.Root, Driver: m.cfg.Driver()}
	if names.Driver == place.Cgroupfs {
		return cgroupfs{m.cfg.Host}, names
	}
	if m.cfg.Host.Mode() == cgroup.V2 {
		return systemd.Slices{Host: m.cfg.Host}, names
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.told {
		m.told = true
		m.cfg.Log.Warn("the runtime's cgroup driver is systemd, and this host has cgroup v1: classes of pods have no cgroups with a weight of their own; set the runtime's driver to cgroupfs, or boot with cgroup v2")
	}
	return nil, names
}

// Prepare makes the cgroups of the classes, and gives all pods together the weight of the node's processors. It does nothing when that is done; the
// other methods do it first.
func (m *Manager) Prepare() error {
	return m.prepared(func(driver, place.Pods) error { return nil })
}

// prepared does something under the lock, once the cgroups of the classes are there; nothing where they cannot be.
func (m *Manager) prepared(then func(d driver, names place.Pods) error) error {
	d, names := m.driver()
	if d == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.prepare(d, names); err != nil {
		return err
	}
	return then(d, names)
}

// prepare is Prepare. m.mu is held.
func (m *Manager) prepare(d driver, names place.Pods) error {
	if m.ready && m.names == names.Driver {
		return nil
	}
	m.ready, m.names, m.written = false, names.Driver, nil
	for _, class := range []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		if err := d.Create(names.Class(string(class))); err != nil {
			return fmt.Errorf("cgroup of the class %s: %w", class, err)
		}
	}
	// Without it all pods together would weigh as much as any one cgroup beside them.
	all := m.cfg.Allocatable()
	weight := cgroup.Resources{CPUShares: shares(all.Cpu().MilliValue())}
	err := errors.Join(
		d.Set(names.Node(), weight),
		d.Set(names.All(), weight),
		d.Set(names.Class(string(v1.PodQOSBestEffort)), cgroup.Resources{CPUShares: shares(0)}),
	)
	if err != nil {
		return fmt.Errorf("cgroup of all pods: %w", err)
	}
	m.ready = true
	return m.update(d, names)
}

// Enforce limits all pods together to the node's allocatable memory. It can fail where they have more already, as after a reservation that was made greater:
// it is to be tried again then, and pods go on.
func (m *Manager) Enforce() error { return m.prepared(m.enforce) }

func (m *Manager) enforce(d driver, names place.Pods) error {
	all := m.cfg.Allocatable()
	name, memory := names.All(), all.Memory().Value()
	if memory <= 0 {
		return nil
	}
	if err := d.Set(name, cgroup.Resources{MemoryLimit: &memory}); err != nil {
		return fmt.Errorf("limit the memory of all pods to %d bytes: %w", memory, err)
	}
	return nil
}

// UpdateQoS gives the classes what their pods have together by now. It is to be called after a pod was admitted and after one has ended; it costs nothing
// when that changes nothing.
func (m *Manager) UpdateQoS() error { return m.prepared(m.update) }

// update asks for the sums under the lock, so that of two updates at once none writes what is old. m.mu is held.
func (m *Manager) update(d driver, names place.Pods) error {
	sums, node := m.cfg.Sums(), m.cfg.Node()
	if m.written != nil && *m.written == sums {
		return nil
	}
	all, burstable := ofClasses(sums, &node)
	err := d.Set(names.Class(string(v1.PodQOSBurstable)), burstable)
	if err == nil && len(all.Unified) > 0 {
		err = d.Set(names.All(), all)
	}
	if err != nil {
		m.written = nil
		return fmt.Errorf("cgroups of the classes of pods: %w", err)
	}
	m.written = &sums
	return nil
}

// Ensure makes the pod's cgroup, if it is not there, and says what it may have. It is to be called before the pod's sandbox is made.
func (m *Manager) Ensure(pod *v1.Pod) error {
	d, names := m.driver()
	if d == nil {
		return nil
	}
	if err := m.Prepare(); err != nil {
		return err
	}
	name, node := names.Pod(string(pod.UID), string(pods.QOS(pod))), m.cfg.Node()
	err := d.Create(name)
	if err == nil {
		err = d.Set(name, ofPod(pod, &node, m.sizes))
	}
	if err != nil {
		return fmt.Errorf("cgroup of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// classes are all that a pod may be of.
var classes = []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}

// Remove removes the cgroup of the pod with the UID, of whatever class it is. It is to be called when the pod's sandboxes are gone; a cgroup with
// processes is errdefs.ErrFailedPrecondition.
func (m *Manager) Remove(uid types.UID) error {
	if name := string(uid); name == "" || path.Base(name) != name || name == "." || name == ".." {
		return fmt.Errorf("pod UID %q is no name of a cgroup", uid)
	}
	d, names := m.driver()
	if d == nil {
		return nil
	}
	for _, class := range classes {
		name := names.Pod(string(uid), string(class))
		at, err := d.Path(name)
		if err != nil {
			return err
		}
		switch there, err := m.cfg.Host.Exists(at); {
		case err != nil:
			return err
		case !there:
			continue
		}
		if err := d.Remove(name); err != nil {
			return fmt.Errorf("cgroup of pod %s: %w", uid, err)
		}
	}
	return nil
}

// UIDs lists the pods that have cgroups, those too that nobody knows any more.
func (m *Manager) UIDs() ([]types.UID, error) {
	d, names := m.driver()
	if d == nil {
		return nil, nil
	}
	var uids []types.UID
	for _, class := range classes {
		at, err := d.Path(names.Class(string(class)))
		if err != nil {
			return nil, err
		}
		children, err := m.cfg.Host.Children(at)
		if err != nil {
			return nil, err
		}
		for _, name := range children {
			if uid, ok := names.UID(name); ok {
				uids = append(uids, types.UID(uid))
			}
		}
	}
	return uids, nil
}
