package admit

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/pods/allocated"
)

// Need is what a pod needs of its node, and has of it once it is admitted. It is a value of its own: later changes of the pod's specification do not change it.
type Need struct {
	// MilliCPU is in thousandths of a processor; Memory and Storage (the ephemeral one) are in bytes.
	MilliCPU, Memory, Storage int64
	// Others are whole amounts of what else a node counts: huge pages, and what Kubernetes itself defines.
	Others map[v1.ResourceName]int64
	// Ports are those of the host.
	Ports []pods.HostPort
	QOS   v1.PodQOSClass
}

// NeedOf is what a pod asks for: the sum over its containers as KEP-753 has it, its own resources where it has some, and its sandbox's overhead.
func NeedOf(pod *v1.Pod) Need {
	n := Need{Ports: pods.HostPorts(&pod.Spec), QOS: pods.QOS(pod)}
	for name, q := range allocated.Of(pod).Requests() {
		switch {
		case name == v1.ResourceCPU:
			n.MilliCPU = q.MilliValue()
		case name == v1.ResourceMemory:
			n.Memory = q.Value()
		case name == v1.ResourceEphemeralStorage:
			n.Storage = q.Value()
		case counted(name):
			if n.Others == nil {
				n.Others = map[v1.ResourceName]int64{}
			}
			n.Others[name] = q.Value()
		}
	}
	return n
}

// counted says of a resource beside the three above that a node has an amount of it: huge pages, and names in Kubernetes' own domain.
func counted(name v1.ResourceName) bool {
	return pods.IsHugepages(name) || strings.Contains(string(name), "/") && !pods.IsExtended(name)
}

// Used is what the pods of a node have together. The zero value is that of a node without pods.
type Used struct {
	pods                      int
	milliCPU, memory, storage int64
	others                    map[v1.ResourceName]int64
	ports                     map[portKey]map[string]int
	qos                       QOSSums
	// own are the ports at which the node itself serves.
	own []pods.OwnPort
}

// QOSSums are what the pods of a class request together.
type QOSSums struct {
	// BurstableMilliCPU is in thousandths of a processor, the others are in bytes.
	BurstableMilliCPU, BurstableMemory, GuaranteedMemory int64
}

type portKey struct {
	protocol v1.Protocol
	port     int32
}

// Add counts a pod's need.
func (u *Used) Add(need *Need) { u.count(need, 1) }

// Sub takes back what Add has counted.
func (u *Used) Sub(need *Need) { u.count(need, -1) }

func (u *Used) count(need *Need, n int) {
	by := int64(n)
	u.pods += n
	u.milliCPU += by * need.MilliCPU
	u.memory += by * need.Memory
	u.storage += by * need.Storage
	for name, amount := range need.Others {
		if u.others == nil {
			u.others = map[v1.ResourceName]int64{}
		}
		u.others[name] += by * amount
	}
	for _, p := range need.Ports {
		u.countPort(p, n)
	}
	switch need.QOS {
	case v1.PodQOSBurstable:
		u.qos.BurstableMilliCPU += by * need.MilliCPU
		u.qos.BurstableMemory += by * need.Memory
	case v1.PodQOSGuaranteed:
		u.qos.GuaranteedMemory += by * need.Memory
	}
}

// countPort counts how often an address of the host has a port. Pods that began before may have one twice.
func (u *Used) countPort(p pods.HostPort, n int) {
	key := portKey{p.Protocol, p.Port}
	if u.ports == nil {
		u.ports = map[portKey]map[string]int{}
	}
	if u.ports[key] == nil {
		u.ports[key] = map[string]int{}
	}
	if u.ports[key][p.IP] += n; u.ports[key][p.IP] == 0 {
		delete(u.ports[key], p.IP)
	}
	if len(u.ports[key]) == 0 {
		delete(u.ports, key)
	}
}

// conflicts says that one of the ports is taken: at the same address, or where either has all of them.
func (u *Used) conflicts(ports []pods.HostPort) bool {
	for _, p := range ports {
		taken := u.ports[portKey{p.Protocol, p.Port}]
		if len(taken) > 0 && (p.IP == "" || taken[""] > 0 || taken[p.IP] > 0) {
			return true
		}
	}
	return false
}
