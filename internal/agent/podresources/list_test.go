package podresources

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/inventory"
)

const gpu = "nvidia.com/gpu"

// pod has containers with these names; one before which there is "i:" is an init container, with "s:" a restartable one.
func pod(name string, phase v1.PodPhase, containers ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}, Status: v1.PodStatus{Phase: phase}}
	for _, c := range containers {
		kind, bare, ok := strings.Cut(c, ":")
		always := v1.ContainerRestartPolicyAlways
		switch {
		case !ok:
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c})
		case kind == "i":
			p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: bare})
		default:
			p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: bare, RestartPolicy: &always})
		}
	}
	return p
}

func grant(pod, container string, has ...devices.GrantedDevice) devices.GrantRecord {
	return devices.GrantRecord{PodUID: "uid-" + pod, PodNamespace: "ns", PodName: pod, Container: container, Devices: has}
}

// say is an answer as text: "pod: container=[resource ids @nodes] ...".
func say(all ...*api.PodResources) string {
	var lines []string
	for _, p := range all {
		line := p.Namespace + "/" + p.Name + ":"
		for _, c := range p.Containers {
			line += " " + c.Name
			for _, d := range c.Devices {
				line += sayDevice(d)
			}
			if len(c.CpuIds)+len(c.Memory)+len(c.DynamicResources) > 0 {
				line += " and more"
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

func sayDevice(d *api.ContainerDevices) string {
	text := fmt.Sprint("[", d.ResourceName, " ", strings.Join(d.DeviceIds, ","))
	if d.Topology != nil {
		text += " @"
		for _, n := range d.Topology.Nodes {
			text += fmt.Sprint(n.ID)
		}
	}
	return text + "]"
}

func TestList(t *testing.T) {
	zero := devices.GrantedDevice{Resource: gpu, Name: "0", Aliases: []string{"GPU-8dcd427f"}, NUMA: []int{0}}
	one := devices.GrantedDevice{Resource: gpu, Name: "1", Health: devices.Unhealthy}
	both := devices.GrantedDevice{Resource: "example.com/nic", Name: "n", NUMA: []int{0, 1}}
	for name, c := range map[string]struct {
		pods   []*v1.Pod
		grants []devices.GrantRecord
		want   string
	}{
		"nothing": {},
		"a pod without devices": {
			pods: []*v1.Pod{pod("p", v1.PodRunning, "a", "b")},
			want: "ns/p: a b",
		},
		"devices by all their names, near their nodes, healthy or not": {
			pods:   []*v1.Pod{pod("q", v1.PodPending, "a"), pod("p", v1.PodRunning, "a", "b")},
			grants: []devices.GrantRecord{grant("p", "b", both, zero, one), grant("q", "a")},
			want:   "ns/p: a b[example.com/nic n @01][nvidia.com/gpu 0,GPU-8dcd427f @0][nvidia.com/gpu 1]; ns/q: a",
		},
		"restartable init containers are there, the others are not": {
			pods:   []*v1.Pod{pod("p", v1.PodRunning, "i:first", "s:side", "a")},
			grants: []devices.GrantRecord{grant("p", "first", one), grant("p", "side", zero), grant("p", "a", one)},
			want:   "ns/p: side[nvidia.com/gpu 0,GPU-8dcd427f @0] a[nvidia.com/gpu 1]",
		},
		"a finished pod is there until it has given its devices back": {
			pods:   []*v1.Pod{pod("f", v1.PodFailed, "a"), pod("s", v1.PodSucceeded, "a")},
			grants: []devices.GrantRecord{grant("f", "a", one)},
			want:   "ns/f: a[nvidia.com/gpu 1]",
		},
		"devices of another pod of the name": {
			pods:   []*v1.Pod{pod("p", v1.PodRunning, "a")},
			grants: []devices.GrantRecord{{PodUID: "older", PodNamespace: "ns", PodName: "p", Container: "a", Devices: []devices.GrantedDevice{one}}},
			want:   "ns/p: a",
		},
	} {
		if got := say(list(c.pods, c.grants)...); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func TestAllocatable(t *testing.T) {
	d := func(resource, name, unhealthy string, numa ...int) devices.DeviceStatus {
		return devices.DeviceStatus{Device: inventory.Device{Resource: resource, Name: name, Unhealthy: unhealthy, NUMA: numa}}
	}
	whole := func(s devices.DeviceStatus) devices.DeviceStatus { s.Whole = true; return s }
	named := func(s devices.DeviceStatus, aliases ...string) devices.DeviceStatus { s.Aliases = aliases; return s }
	for name, c := range map[string]struct {
		all  []devices.DeviceStatus
		want string
	}{
		"nothing": {},
		"the healthy ones": {
			[]devices.DeviceStatus{d("a/x", "1", ""), d("a/x", "2", "broken"), d("b/x", "1", "", 1), d("b/x", "2", "", 1)},
			"[a/x 1][b/x 1 @1][b/x 2 @1]",
		},
		"by all their names, and not all of them once more": {
			[]devices.DeviceStatus{named(d("a/x", "0", ""), "uuid"), whole(d("a/x", "all", "")), whole(d("b/x", "all", ""))},
			"[a/x 0,uuid][b/x all]",
		},
	} {
		got := ""
		for _, e := range allocatable(c.all) {
			got += sayDevice(e)
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}
