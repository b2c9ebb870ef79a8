package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/nodestatus"
	"monopod.dev/monopod/internal/devices"
)

// DeviceManager grants the machine's devices to containers. All methods are safe for concurrent use.
type DeviceManager interface {
	// Resources are the capacities by resource name.
	Resources() map[string]int64
	// Changed ticks after Resources, a device's health or what is free has changed. Ticks may be merged.
	Changed() <-chan struct{}
	// Grant is idempotent by pod and container; what it grants is on record before it returns. Any error means that the
	// container has no devices and must not be started.
	Grant(context.Context, devices.GrantRequest) (devices.Grant, error)
	// Release gives back all that a pod has. It is idempotent.
	Release(ctx context.Context, podUID string) error
	// Reconcile gives back what pods have that are not live any more.
	Reconcile(ctx context.Context, live map[string]bool) error
}

var _ DeviceManager = (*devices.Manager)(nil)

// grants is a DeviceManager as the workers see it; with a nil manager no pod gets a device.
type grants struct{ manager DeviceManager }

// Grant implements worker.Devices.
func (g grants) Grant(ctx context.Context, pod *v1.Pod, c *v1.Container, init bool, resources map[string]int64) ([]string, error) {
	if g.manager == nil {
		names := slices.Sorted(maps.Keys(resources))
		return nil, fmt.Errorf("container %s asks for %s, and this node has no device manager", c.Name, strings.Join(names, ", "))
	}
	grant, err := g.manager.Grant(ctx, devices.GrantRequest{
		PodUID: string(pod.UID), PodNamespace: pod.Namespace, PodName: pod.Name, Container: c.Name, Init: init, Resources: resources,
	})
	return grant.CDIDevices, err
}

// Release implements worker.Devices.
func (g grants) Release(ctx context.Context, podUID string) error {
	if g.manager == nil {
		return nil
	}
	return g.manager.Release(ctx, podUID)
}

// resources are the capacities of the devices, none without a manager.
func (a *Agent) resources() map[string]int64 {
	if a.cfg.Devices == nil {
		return nil
	}
	return a.cfg.Devices.Resources()
}

// watchDevices tells the pods that wait, and the node's status, of each change.
func (a *Agent) watchDevices(ctx context.Context, p *pods, r *nodestatus.Reporter) {
	if a.cfg.Devices == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.cfg.Devices.Changed():
			r.Changed()
			p.devicesChanged()
		}
	}
}
