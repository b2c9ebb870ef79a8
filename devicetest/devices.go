package devicetest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/source"
)

// Device is one device as the node knows it.
type Device struct {
	ID string
	// Unhealthy says why the node does not grant it; empty: it is healthy.
	Unhealthy string
	// NUMA are the NUMA nodes that the device is near, sorted.
	NUMA []int
}

// Healthy says that the node grants it.
func (d Device) Healthy() bool { return d.Unhealthy == "" }

// Devices returns the devices of a resource in the natural order of their IDs; none where no plugin has told its devices.
func (n *Node) Devices(resource string) []Device {
	src, _ := n.now()
	var all []Device
	for _, d := range src.Snapshot().Of(resource) {
		all = append(all, Device{ID: d.Name, Unhealthy: d.Unhealthy, NUMA: d.NUMA})
	}
	return all
}

// Resources are the names of all resources that are known.
func (n *Node) Resources() []string {
	src, _ := n.now()
	return append([]string(nil), src.Snapshot().Resources...)
}

// Problems are what the node finds wrong with the plugins, as an operator would read it.
func (n *Node) Problems() []string {
	src, _ := n.now()
	var all []string
	for _, p := range src.Snapshot().Problems {
		all = append(all, p.String())
	}
	return all
}

// WaitForDevices waits until the devices of a resource are as wanted, and returns them. When ctx ends first the test fails, with what the
// devices were like last, and what the node finds wrong.
func (n *Node) WaitForDevices(ctx context.Context, resource string, want func([]Device) bool) []Device {
	n.t.Helper()
	for {
		_, changed := n.now()
		devices := n.Devices(resource)
		if want(devices) {
			return devices
		}
		select {
		case <-changed:
		case <-ctx.Done():
			n.t.Fatalf("devicetest: the devices of %s are not as wanted: %s; the node knows the resources %q, and finds wrong: %s",
				resource, describe(devices), n.Resources(), strings.Join(append(n.Problems(), "no more"), "; "))
		}
	}
}

// WaitForHealthy waits until a resource has exactly so many healthy devices: see WaitForDevices.
func (n *Node) WaitForHealthy(ctx context.Context, resource string, count int) []Device {
	n.t.Helper()
	return n.WaitForDevices(ctx, resource, func(devices []Device) bool {
		healthy := 0
		for _, d := range devices {
			if d.Healthy() {
				healthy++
			}
		}
		return healthy == count
	})
}

func describe(devices []Device) string {
	const most = 10
	var all []string
	for i, d := range devices {
		if i == most {
			all = append(all, fmt.Sprintf("and %d more", len(devices)-most))
			break
		}
		health := "healthy"
		if !d.Healthy() {
			health = d.Unhealthy
		}
		all = append(all, fmt.Sprintf("%q (%s)", d.ID, health))
	}
	if len(all) == 0 {
		return "there are none"
	}
	return strings.Join(all, ", ")
}

// Answer is what a container is given with its devices. It was checked as the node does.
type Answer struct {
	// CDIDevices are fully qualified CDI names, "vendor.com/class=name".
	CDIDevices []string
	Devices    []DeviceNode
	Mounts     []Mount
	// Envs are environment variables, Annotations the container's annotations in the runtime.
	Envs, Annotations map[string]string
}

// DeviceNode is a device node; Permissions are of "r", "w" and "m", in this order.
type DeviceNode struct{ HostPath, ContainerPath, Permissions string }

// Mount is a bind mount.
type Mount struct {
	HostPath, ContainerPath string
	ReadOnly                bool
}

// container is whom devices are granted to.
var container = source.Container{PodUID: "devicetest", PodNamespace: "default", PodName: "devicetest", Name: "main"}

// Allocate grants devices of a resource to a container, as the node does: devices that are healthy, by one call of the plugin's Allocate, with
// the answer checked. Nothing is kept: the same devices may be allocated again.
//
// An error that Refused reports would fail the pod for good; with any other the pod waits, and the node tries again.
func (n *Node) Allocate(ctx context.Context, resource string, ids []string) (Answer, error) {
	src, _ := n.now()
	for _, id := range ids {
		if err := src.Check(resource, id, false); err != nil {
			return Answer{}, err
		}
	}
	a, err := src.Prepare(ctx, container, resource, ids)
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{CDIDevices: a.CDIDevices, Envs: a.Envs, Annotations: a.Annotations}
	for _, d := range a.Nodes {
		answer.Devices = append(answer.Devices, DeviceNode{d.HostPath, d.ContainerPath, d.Permissions})
	}
	for _, m := range a.Mounts {
		answer.Mounts = append(answer.Mounts, Mount{m.HostPath, m.ContainerPath, m.ReadOnly})
	}
	return answer, nil
}

// Refused says that the plugin has refused an Allocate, or that its answer cannot be used: the pod would fail.
func Refused(err error) bool {
	var refused *answer.RefusedError
	return errors.As(err, &refused)
}

// Preferred asks the plugin which count of the available devices should be granted, with all of must among them. It returns nil where the node
// goes on without advice: the plugin does not offer it (get_preferred_allocation_available), does not answer in 1.5 s, or its answer does not
// fit, which is in the test's log.
func (n *Node) Preferred(ctx context.Context, resource string, available, must []string, count int) []string {
	src, _ := n.now()
	return src.Prefer(ctx, resource, available, must, count)
}

// PreStart does what the node does before each start of a container: it calls the plugin's PreStartContainer where the plugin has asked for it
// (pre_start_required). The container waits for as long as there is an error.
func (n *Node) PreStart(ctx context.Context, resource string, ids []string) error {
	src, _ := n.now()
	return src.BeforeStart(ctx, container, resource, ids)
}
