package podresources

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/pods"
)

// held is what the containers of a pod have, by name.
type held map[string][]devices.GrantedDevice

// byPod sorts grants by the pod's UID. As with kubelets, what a plugin is still being asked for is not told: it may refuse it.
func byPod(grants []devices.GrantRecord) map[string]held {
	all := map[string]held{}
	for _, g := range grants {
		if all[g.PodUID] == nil {
			all[g.PodUID] = held{}
		}
		for _, d := range g.Devices {
			if !d.Pending {
				all[g.PodUID][g.Container] = append(all[g.PodUID][g.Container], d)
			}
		}
	}
	return all
}

// list is the answer of List: the active pods, by namespace and name. A pod is active until it has finished and has given its devices back.
func list(pods []*v1.Pod, grants []devices.GrantRecord) []*api.PodResources {
	has := byPod(grants)
	pods = slices.SortedFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var all []*api.PodResources
	for _, pod := range pods {
		finished := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		if devices := has[string(pod.UID)]; !finished || len(devices) > 0 {
			all = append(all, resourcesOf(pod, devices))
		}
	}
	return all
}

// resourcesOf tells what the containers of a pod have that run side by side: as with kubelets not the init containers, whose devices pass on to
// the others, but the restartable ones.
func resourcesOf(pod *v1.Pod, has held) *api.PodResources {
	out := &api.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	add := func(name string) {
		c := &api.ContainerResources{Name: name}
		for _, d := range has[name] {
			c.Devices = append(c.Devices, entry(d.Resource, d.Name, d.Aliases, d.NUMA))
		}
		out.Containers = append(out.Containers, c)
	}
	for role, c := range pods.Containers(&pod.Spec) {
		if role == pods.Sidecar || role == pods.App {
			add(c.Name)
		}
	}
	return out
}

// allocatable is the answer of GetAllocatableResources: the devices that are healthy, granted or not. A device that stands for all others is
// none of them.
func allocatable(all []devices.DeviceStatus) []*api.ContainerDevices {
	var entries []*api.ContainerDevices
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(d devices.DeviceStatus) bool { return d.Resource != all[0].Resource })
		if n < 0 {
			n = len(all)
		}
		var of []inventory.Device
		for _, d := range all[:n] {
			of = append(of, d.Device)
		}
		for _, d := range inventory.Units(of) {
			if d.Unhealthy == "" {
				entries = append(entries, entry(d.Resource, d.Name, d.Aliases, d.NUMA))
			}
		}
		all = all[n:]
	}
	return entries
}

func entry(resource, name string, aliases []string, numa []int) *api.ContainerDevices {
	e := &api.ContainerDevices{ResourceName: resource, DeviceIds: append([]string{name}, aliases...)}
	if len(numa) > 0 {
		e.Topology = &api.TopologyInfo{}
	}
	for _, n := range numa {
		e.Topology.Nodes = append(e.Topology.Nodes, &api.NUMANode{ID: int64(n)})
	}
	return e
}
