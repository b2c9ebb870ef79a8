package topology

// Container is what one container of a pod asks for.
type Container struct {
	// Counts are numbers of devices by resource.
	Counts map[string]int
	// Init: it is an init container. Restartable: it is one that stays while the others run (a sidecar).
	Init, Restartable bool
}

// PodCounts is how many devices a pod needs at most at a time, by resource: what PerPod asks for at once. The containers are in the pod's order, init
// containers first. An init container's devices are handed down to those after it, unless it is restartable and keeps them
// (kubernetes.io/docs/concepts/workloads/pods/sidecar-containers, "Resource sharing within containers").
func PodCounts(containers []Container) map[string]int {
	kept, peak := map[string]int{}, map[string]int{}
	for _, c := range containers {
		for resource, n := range c.Counts {
			if n <= 0 {
				continue
			}
			peak[resource] = max(peak[resource], kept[resource]+n)
			if !c.Init || c.Restartable {
				kept[resource] += n
			}
		}
	}
	return peak
}
