package binder

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// most is what a node has by which a pod has all that it wishes for in one respect. It is large, so that nodes that differ are not made equal by rounding.
const most = 1_000_000

// best is the place that a pod would rather have than any other of those that it can have.
//
// Wishes are of three kinds: which nodes, which company, and how those like the pod are spread. As with kube-scheduler each of them weighs the same,
// whatever numbers it is reckoned in. Of equals the one with the fewest pods is the best, of these the first by name.
func best(known *survey, able []place) place {
	if len(able) == 1 {
		return able[0]
	}
	merits := make([]merit, len(able))
	for i, at := range able {
		merits[i] = merit{place: at}
	}
	for _, points := range [][]int64{byNodes(known.pod, able), byCompany(&known.company, able), bySpread(known.in.spreads(known.pod, corev1.ScheduleAnyway), able)} {
		for i, p := range points {
			merits[i].points += p
		}
	}
	return slices.MinFunc(merits, merit.compare).place
}

// merit is what speaks for a place.
type merit struct {
	points int64
	place
}

// compare is negative if m is the better one.
func (m merit) compare(o merit) int {
	return cmp.Or(cmp.Compare(o.points, m.points), cmp.Compare(len(m.pods), len(o.pods)), cmp.Compare(m.node.Name, o.node.Name))
}

// byNodes gives points for what the pod prefers of nodes: most where the weights are highest, the others by their share of that.
func byNodes(pod *corev1.Pod, able []place) []int64 {
	points := make([]int64, len(able))
	for i, at := range able {
		points[i] = preference(pod, at.node)
	}
	highest := slices.Max(points)
	if highest == 0 {
		return nil
	}
	for i := range points {
		points[i] = points[i] * most / highest
	}
	return points
}

// byCompany gives points for preferred affinity to pods, the pod's own and that of those that are there: from none where it is least to most.
func byCompany(known *company, able []place) []int64 {
	points := make([]int64, len(able))
	for i, at := range able {
		points[i] = known.likes(at.node)
	}
	lowest, highest := slices.Min(points), slices.Max(points)
	if lowest == highest {
		return nil
	}
	for i := range points {
		points[i] = (points[i] - lowest) * most / (highest - lowest)
	}
	return points
}

// bySpread gives points for constraints that need not be kept: by the share that a domain has fewer pods than the one with the most. Each constraint gives
// the same part of them, and a wider skew makes less of the same difference. A node that is not in a domain of each gets none.
func bySpread(all []spread, able []place) []int64 {
	if len(all) == 0 {
		return nil
	}
	var within []int
	for k, at := range able {
		if inAll(all, at.node) {
			within = append(within, k)
		}
	}
	points := make([]int64, len(able))
	for i := range all {
		crowds := make([]int64, len(within))
		for j, k := range within {
			crowds[j] = int64(all[i].counts[able[k].node.Labels[all[i].TopologyKey]]) + int64(all[i].MaxSkew) - 1
		}
		for j, k := range within {
			share := int64(most)
			if highest := slices.Max(crowds); highest > 0 {
				share = most * (highest + slices.Min(crowds) - crowds[j]) / highest
			}
			points[k] += share / int64(len(all))
		}
	}
	return points
}
