package eviction

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/pods/allocated"
)

// Reason is that of a pod that was evicted.
const Reason = "Evicted"

// Used is what a pod takes of the node's disk, in bytes.
type Used struct {
	// Volumes are those on the disk, by their names.
	Volumes map[string]uint64
	// Containers are their writable layers and logs, by their names.
	Containers map[string]uint64
	// Other is what else the node keeps for the pod.
	Other uint64
}

func (u *Used) total() uint64 {
	all := u.Other
	for _, of := range []map[string]uint64{u.Volumes, u.Containers} {
		for _, n := range of {
			all += n
		}
	}
	return all
}

// Limits says which limits of the disk a pod has.
type Limits struct{ Volumes, Containers bool }

// LimitsOf reads them from a pod. Volumes in memory cannot outgrow theirs.
func LimitsOf(pod *v1.Pod) (l Limits) {
	for i := range pod.Spec.Volumes {
		l.Volumes = l.Volumes || sizeLimit(&pod.Spec.Volumes[i]) != nil
	}
	for _, c := range pods.Containers(&pod.Spec) {
		_, limited := allocated.Of(pod).Container(c.Name).Limits[v1.ResourceEphemeralStorage]
		l.Containers = l.Containers || limited
	}
	return l
}

// sizeLimit is a volume's; nil: it has none. A limit of zero is none (EmptyDirVolumeSource).
func sizeLimit(v *v1.Volume) *resource.Quantity {
	if e := v.EmptyDir; e != nil && e.Medium == v1.StorageMediumDefault && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 {
		return e.SizeLimit
	}
	return nil
}

// Exceeded is the verdict on a pod that takes more than it may; nil: it does not. The order, and what is said, are a kubelet's: volumes, the pod, containers.
func Exceeded(pod *v1.Pod, used *Used) *plan.Verdict {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if limit := sizeLimit(v); limit != nil && over(used.Volumes[v.Name], limit) {
			return evicted(fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, limit.String()))
		}
	}
	// Of a pod, only the limits that there are: a container without one may take what the others leave.
	if limit, ok := allocated.Of(pod).Whole().Limits[v1.ResourceEphemeralStorage]; ok && over(used.total(), &limit) {
		return evicted(fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String()))
	}
	for _, c := range pods.Containers(&pod.Spec) {
		if limit, ok := allocated.Of(pod).Container(c.Name).Limits[v1.ResourceEphemeralStorage]; ok && over(used.Containers[c.Name], &limit) {
			return evicted(fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String()))
		}
	}
	return nil
}

func over(used uint64, limit *resource.Quantity) bool {
	return resource.NewQuantity(int64(used), resource.BinarySI).Cmp(*limit) > 0
}

func evicted(message string) *plan.Verdict {
	return plan.Terminated(Reason, message, plan.ShortestGrace)
}
