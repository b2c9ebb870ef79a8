package replicas

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// rank sorts pods by who is to be deleted first when there are too many. The order is that of the documentation of replica sets and of KEP-2185 and KEP-2255:
//
//   - without a node before with one;
//   - Pending before Unknown before Running;
//   - not ready before ready;
//   - a lower annotation controller.kubernetes.io/pod-deletion-cost;
//   - more ready neighbours on the node;
//   - ready for a shorter time, on a scale of powers of two;
//   - more restarts of a container, then of a sidecar;
//   - younger, on that scale;
//   - by UID, which is chance.
func rank(all, neighbours []*corev1.Pod, now time.Time) {
	ready := map[string]int{}
	for _, pod := range neighbours {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && !pods.Ended(pod) && pods.IsTrue(&pod.Status, corev1.PodReady) {
			ready[pod.Spec.NodeName]++
		}
	}
	ranked := make([]candidate, len(all))
	for i, pod := range all {
		ranked[i] = newCandidate(pod, ready[pod.Spec.NodeName], now)
	}
	slices.SortStableFunc(ranked, candidate.compare)
	for i := range ranked {
		all[i] = ranked[i].pod
	}
}

// candidate is a pod with what its place in the order depends on.
type candidate struct {
	pod                      *corev1.Pod
	bound, ready             bool
	phase, cost, neighbours  int
	readyFor, age            int // powers of two
	restarts, sidecarRestart int32
}

func newCandidate(pod *corev1.Pod, neighbours int, now time.Time) candidate {
	c := candidate{pod: pod, bound: pod.Spec.NodeName != "", neighbours: neighbours, age: magnitude(now.Sub(pod.CreationTimestamp.Time))}
	switch pod.Status.Phase {
	case corev1.PodUnknown:
		c.phase = 1
	case corev1.PodRunning:
		c.phase = 2
	}
	if cost, err := strconv.ParseInt(pod.Annotations[corev1.PodDeletionCost], 10, 32); err == nil {
		c.cost = int(cost)
	}
	if condition := pods.Condition(&pod.Status, corev1.PodReady); condition != nil && condition.Status == corev1.ConditionTrue {
		c.ready, c.readyFor = true, magnitude(now.Sub(condition.LastTransitionTime.Time))
	}
	for _, s := range pod.Status.ContainerStatuses {
		c.restarts = max(c.restarts, s.RestartCount)
	}
	for role, container := range pods.Containers(&pod.Spec) {
		if role != pods.Sidecar {
			continue
		}
		for _, s := range pod.Status.InitContainerStatuses {
			if s.Name == container.Name {
				c.sidecarRestart = max(c.sidecarRestart, s.RestartCount)
			}
		}
	}
	return c
}

func (c candidate) compare(o candidate) int {
	return cmp.Or(
		falseFirst(c.bound, o.bound),
		cmp.Compare(c.phase, o.phase),
		falseFirst(c.ready, o.ready),
		cmp.Compare(c.cost, o.cost),
		-cmp.Compare(c.neighbours, o.neighbours),
		cmp.Compare(c.readyFor, o.readyFor),
		-cmp.Compare(c.restarts, o.restarts),
		-cmp.Compare(c.sidecarRestart, o.sidecarRestart),
		cmp.Compare(c.age, o.age),
		cmp.Compare(c.pod.UID, o.pod.UID),
	)
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// magnitude is the power of two of a time. Who is older by a little is not for that the one that stays: else the oldest, often on one node, always would.
func magnitude(d time.Duration) int {
	if d <= 0 {
		return -1
	}
	return int(math.Log2(float64(d)))
}
