package plugin

import (
	"fmt"
	"slices"
	"strings"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/devices/inventory"
)

const (
	// longestID is what the API's comments allow; kubelets never checked it.
	longestID = 63
	// maxNUMA is more than Linux has NUMA nodes (CONFIG_NODES_SHIFT is 10 at most).
	maxNUMA = 1024
)

// note is what is wrong with a list of devices. Its kind says which rule it is about, whatever the devices are called.
type note struct{ kind, text string }

// notes gathers what is wrong, a few examples of each kind.
type notes struct {
	kinds    []string
	count    map[string]int
	examples map[string][]string
}

func (n *notes) add(kind, example string) {
	if n.count == nil {
		n.count, n.examples = map[string]int{}, map[string][]string{}
	}
	if n.count[kind] == 0 {
		n.kinds = append(n.kinds, kind)
	}
	n.count[kind]++
	if len(n.examples[kind]) < 3 {
		n.examples[kind] = append(n.examples[kind], example)
	}
}

func (n *notes) list() []note {
	var all []note
	for _, kind := range n.kinds {
		text := fmt.Sprintf("%s (%s", kind, strings.Join(n.examples[kind], ", "))
		if more := n.count[kind] - len(n.examples[kind]); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		all = append(all, note{kind, text + ")"})
	}
	return all
}

// devicesOf makes devices of what a plugin sent, in the order of their names, and says what is wrong with it.
func devicesOf(resource, socket string, sent []*v1beta1.Device) ([]inventory.Device, []note) {
	var wrong notes
	devices := make([]inventory.Device, 0, len(sent))
	seen := make(map[string]bool, len(sent))
	for i, d := range sent {
		id := d.GetID()
		switch {
		case id == "":
			wrong.add("devices without an ID are left out", fmt.Sprintf("number %d of the list", i))
			continue
		case seen[id]:
			wrong.add("an ID is in the list more than once, and the first counts", brief(id))
			continue
		case len(id) > longestID:
			wrong.add(fmt.Sprintf("IDs are longer than the %d characters that the API allows; they are used all the same", longestID), brief(id))
		}
		seen[id] = true
		device := inventory.Device{Resource: resource, Name: id, Origin: socket}
		switch health := d.GetHealth(); health {
		case v1beta1.Healthy:
		case v1beta1.Unhealthy:
			device.Unhealthy = "its plugin says that it is unhealthy"
		default:
			device.Unhealthy = fmt.Sprintf("its plugin says %s about its health, not %q", brief(health), v1beta1.Healthy)
			wrong.add(fmt.Sprintf("a health other than %q and %q counts as unhealthy", v1beta1.Healthy, v1beta1.Unhealthy), brief(id)+": "+brief(health))
		}
		device.NUMA = numaOf(id, d.GetTopology(), &wrong)
		devices = append(devices, device)
	}
	slices.SortFunc(devices, func(a, b inventory.Device) int { return inventory.CompareNames(a.Name, b.Name) })
	return devices, wrong.list()
}

// numaOf returns the nodes, sorted. A negative one is how drivers, and plugins that pass it on, say that there is none.
func numaOf(id string, topology *v1beta1.TopologyInfo, wrong *notes) []int {
	var nodes []int
	for _, n := range topology.GetNodes() {
		switch node := n.GetID(); {
		case node < 0:
		case node >= maxNUMA:
			wrong.add("NUMA nodes that no machine has are left out", fmt.Sprintf("%s: %d", brief(id), node))
		default:
			nodes = append(nodes, int(node))
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// gone returns the devices of a plugin that is away.
func gone(devices []inventory.Device, why string) []inventory.Device {
	away := slices.Clone(devices)
	for i := range away {
		away[i].Unhealthy = why
	}
	return away
}

// find looks a device up among those of one resource, which are in order.
func find(devices []inventory.Device, name string) (inventory.Device, bool) {
	i, ok := slices.BinarySearchFunc(devices, name, func(d inventory.Device, name string) int { return inventory.CompareNames(d.Name, name) })
	if !ok {
		return inventory.Device{}, false
	}
	return devices[i], true
}

// brief quotes a string of a plugin's, which may be of any length.
func brief(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q... of %d bytes", s[:most], len(s))
	}
	return fmt.Sprintf("%q", s)
}
