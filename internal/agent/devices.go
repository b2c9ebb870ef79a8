package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/nodestatus"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/pods"
)

// DeviceManager grants the machine's devices to containers. All methods are safe for concurrent use.
type DeviceManager interface {
	DeviceLists
	// Resources are how much there is, by resource name.
	Resources() map[string]inventory.Quantity
	// Faults is what is wrong with devices that are not allocatable, by resource name.
	Faults() map[string]string
	// Subscribe returns a channel that ticks after Resources, a device's health or what is free has changed, until stop is called.
	Subscribe() (ticks <-chan struct{}, stop func())
	// Admit gives a pod all its devices or none; it is idempotent by pod.
	Admit(context.Context, devices.PodRequest) (devices.Verdict, error)
	// Grant returns what a container of an admitted pod is to be started with, when that is on record. Any error means that it must not be started.
	Grant(context.Context, source.Container) (devices.Grant, error)
	// Release gives back all that a pod has. It is idempotent.
	Release(ctx context.Context, podUID string) error
	// Reconcile gives back what pods have that are not live any more, and learns what the containers of the others have. Nobody is admitted before.
	Reconcile(ctx context.Context, live map[string]bool, holdings []devices.Holding) error
}

// DeviceLists tells what devices there are, and who has them. All methods are safe for concurrent use, and return at once.
type DeviceLists interface {
	// Devices are all devices by resource and name.
	Devices() []devices.DeviceStatus
	// Grants are what all containers have, GrantsOf those of one pod.
	Grants() []devices.GrantRecord
	GrantsOf(podUID string) []devices.GrantRecord
}

var _ DeviceManager = (*devices.Manager)(nil)

// grants is a DeviceManager as the workers see it; with a nil manager no pod gets a device.
type grants struct {
	manager DeviceManager
	// counted are the extended resources that the node counts and that are no devices.
	counted func() v1.ResourceList
}

// Admit implements act.Devices.
func (g grants) Admit(ctx context.Context, pod *v1.Pod) (devices.Verdict, error) {
	req := devices.PodRequest{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Created: pod.CreationTimestamp.Time}
	add := func(c *v1.Container, role alloc.Role) {
		if resources := podspec.ExtendedResources(c); len(resources) > 0 {
			req.Containers = append(req.Containers, devices.ContainerRequest{Name: c.Name, Role: role, Resources: resources})
		}
	}
	for role, c := range pods.Containers(&pod.Spec) {
		switch role {
		case pods.Init:
			add(c, alloc.Init)
		case pods.Sidecar:
			add(c, alloc.Sidecar)
		case pods.App:
			add(c, alloc.Main)
		case pods.Ephemeral: // they have no resources
		}
	}
	if g.manager == nil {
		c := req.Containers[0]
		return devices.Verdict{Phase: devices.Held, Reason: devices.ReasonDevicesNotReady, Message: fmt.Sprintf(
			"container %s asks for %s, and this node has no device manager", c.Name, strings.Join(slices.Sorted(maps.Keys(c.Resources)), ", "))}, nil
	}
	req.Counted = map[string]int64{}
	for name, q := range g.counted() {
		req.Counted[string(name)] = q.Value()
	}
	return g.manager.Admit(ctx, req)
}

// Grant implements act.Devices.
func (g grants) Grant(ctx context.Context, pod *v1.Pod, containerName string) (devices.Grant, error) {
	if g.manager == nil {
		return devices.Grant{}, fmt.Errorf("container %s asks for devices, and this node has no device manager", containerName)
	}
	return g.manager.Grant(ctx, source.Container{PodUID: string(pod.UID), PodNamespace: pod.Namespace, PodName: pod.Name, Name: containerName})
}

// GrantsOf implements act.Devices.
func (g grants) GrantsOf(podUID string) []devices.GrantRecord {
	if g.manager == nil {
		return nil
	}
	return g.manager.GrantsOf(podUID)
}

// Release implements act.Devices.
func (g grants) Release(ctx context.Context, podUID string) error {
	if g.manager == nil {
		return nil
	}
	return g.manager.Release(ctx, podUID)
}

// resources are how many devices there are, none without a manager.
func (a *Agent) resources() map[string]inventory.Quantity {
	if a.cfg.Devices == nil {
		return nil
	}
	return a.cfg.Devices.Resources()
}

// deviceFaults are what is wrong with devices, nothing without a manager.
func (a *Agent) deviceFaults() map[string]string {
	if a.cfg.Devices == nil {
		return nil
	}
	return a.cfg.Devices.Faults()
}

// watchDevices tells the pods that wait, and the node's status, of each change.
func (a *Agent) watchDevices(ctx context.Context, p *roster, r *nodestatus.Reporter) {
	if a.cfg.Devices == nil {
		return
	}
	ticks, stop := a.cfg.Devices.Subscribe()
	defer stop()
	for {
		// Also before the first tick: what has changed before the subscription was told to nobody.
		r.Changed()
		p.devicesChanged()
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		case <-r.Recounted():
		}
	}
}
