package nodestatus

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/agent/pressure"
	"monopod.dev/monopod/internal/devices/inventory"
)

// state is all that the node's status is computed from.
type state struct {
	machine  Machine
	devices  map[string]inventory.Quantity
	faults   map[string]string // of the devices, by resource
	pressure pressure.Shortages
	// fault is why the runtime can't run pods; empty: it can.
	fault          string
	runtimeVersion string
	now            time.Time
}

// labels are those that this agent sets.
func (r *Reporter) labels() map[string]string {
	return map[string]string{
		v1.LabelHostname:   r.cfg.NodeName,
		v1.LabelOSStable:   r.machine.Info.OperatingSystem,
		v1.LabelArchStable: r.machine.Info.Architecture,
		// Kubelets still set the names of before 1.14, too.
		"beta.kubernetes.io/os":   r.machine.Info.OperatingSystem,
		"beta.kubernetes.io/arch": r.machine.Info.Architecture,
	}
}

// apply writes the agent's part into a copy of the node's status.
func (r *Reporter) apply(old v1.NodeStatus, s state) v1.NodeStatus {
	st := *old.DeepCopy()
	st.Capacity = r.resources(old.Capacity, s, capacity)
	st.Allocatable = r.allocatableOf(old.Capacity, s)
	st.Addresses = r.addresses()
	st.NodeInfo = s.machine.Info
	st.NodeInfo.ContainerRuntimeVersion = s.runtimeVersion
	st.NodeInfo.KubeletVersion = r.cfg.Version
	if r.cfg.Features != nil {
		st.Features, st.RuntimeHandlers = r.cfg.Features()
	}
	st.DaemonEndpoints.KubeletEndpoint.Port = int32(r.cfg.Port)
	for _, c := range conditions(s) {
		setCondition(&st, c, s.now)
	}
	return st
}

// resources are the machine's and, as many as of says, its devices. Extended resources that somebody else has written to the node's capacity
// stay; those that were devices and are no more go.
func (r *Reporter) resources(old v1.ResourceList, s state, of func(inventory.Quantity) int64) v1.ResourceList {
	all := s.machine.Resources.DeepCopy()
	all[v1.ResourcePods] = *resource.NewQuantity(int64(r.cfg.MaxPods), resource.DecimalSI)
	maps.Copy(all, r.others(old))
	for name, q := range s.devices {
		all[v1.ResourceName(name)] = *resource.NewQuantity(of(q), resource.DecimalSI)
	}
	return all
}

// others are the resources in the node's capacity that are not this agent's.
func (r *Reporter) others(in v1.ResourceList) v1.ResourceList {
	others := extended(in)
	maps.DeleteFunc(others, func(name v1.ResourceName, _ resource.Quantity) bool { return r.seen[string(name)] })
	return others
}

// allocatableOf is what pods may have: what is reserved is not theirs, nor is, as memory, what the kernel keeps as huge pages. Of what others have written
// to the capacity pods may have all, as with a kubelet.
func (r *Reporter) allocatableOf(old v1.ResourceList, s state) v1.ResourceList {
	all := r.resources(old, s, allocatable)
	take := func(name v1.ResourceName, amount resource.Quantity) {
		left, ok := all[name]
		if !ok {
			return
		}
		left.Sub(amount)
		if left.Sign() < 0 {
			left = *resource.NewQuantity(0, left.Format)
		}
		all[name] = left
	}
	for name, amount := range r.cfg.Reserved {
		take(name, amount)
	}
	for name, amount := range s.machine.Resources {
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			take(v1.ResourceMemory, amount)
		}
	}
	return all
}

func capacity(q inventory.Quantity) int64    { return q.Capacity }
func allocatable(q inventory.Quantity) int64 { return q.Allocatable }

func (r *Reporter) addresses() []v1.NodeAddress {
	var addrs []v1.NodeAddress
	for _, ip := range r.cfg.Addresses {
		addrs = append(addrs, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return append(addrs, v1.NodeAddress{Type: v1.NodeHostName, Address: r.cfg.NodeName})
}

func conditions(s state) []v1.NodeCondition {
	short := func(t v1.NodeConditionType, message, bad, good, fine string) v1.NodeCondition {
		if message != "" {
			return v1.NodeCondition{Type: t, Status: v1.ConditionTrue, Reason: bad, Message: message}
		}
		return v1.NodeCondition{Type: t, Status: v1.ConditionFalse, Reason: good, Message: fine}
	}
	ready := v1.NodeCondition{
		Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
	}
	if s.fault != "" {
		ready.Status, ready.Reason, ready.Message = v1.ConditionFalse, "KubeletNotReady", s.fault
	}
	return []v1.NodeCondition{
		short(v1.NodeMemoryPressure, s.pressure.Memory, "KubeletHasInsufficientMemory", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		short(v1.NodeDiskPressure, s.pressure.Disk, "KubeletHasDiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		short(v1.NodePIDPressure, s.pressure.PIDs, "KubeletHasInsufficientPID", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		ready,
	}
}

func setCondition(st *v1.NodeStatus, c v1.NodeCondition, now time.Time) {
	c.LastHeartbeatTime, c.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
	i := slices.IndexFunc(st.Conditions, func(o v1.NodeCondition) bool { return o.Type == c.Type })
	if i < 0 {
		st.Conditions = append(st.Conditions, c)
		return
	}
	if st.Conditions[i].Status == c.Status {
		c.LastTransitionTime = st.Conditions[i].LastTransitionTime
	}
	st.Conditions[i] = c
}

// differs says that the statuses say something else, heartbeats aside.
func differs(a, b v1.NodeStatus) bool {
	strip := func(st v1.NodeStatus) v1.NodeStatus {
		st = *st.DeepCopy()
		for i := range st.Conditions {
			st.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
		slices.SortFunc(st.Conditions, func(a, b v1.NodeCondition) int { return cmp.Compare(a.Type, b.Type) })
		return st
	}
	return !equal(strip(a), strip(b))
}
