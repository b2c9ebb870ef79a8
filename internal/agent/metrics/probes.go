package metrics

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// ProbeCount is how often a probe of a pod's container has had a result since the container was made.
type ProbeCount struct {
	Namespace, Pod, PodUID, Container string
	// Type is Startup, Liveness or Readiness; Result is successful, failed or unknown.
	Type, Result string
	Count        uint64
}

// Probes writes /metrics/probes. counts may be nil: there are no probes.
func Probes(counts iter.Seq[ProbeCount]) []byte {
	const name = "prober_probe_total"
	t := newText()
	t.describe(name, counter, "Number of results of a startup, liveness or readiness probe of a container, by result",
		"container", "namespace", "pod", "pod_uid", "probe_type", "result")
	if counts == nil {
		return t.bytes()
	}
	all := slices.SortedFunc(counts, func(a, b ProbeCount) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Type, b.Type),
			cmp.Compare(a.Result, b.Result))
	})
	for _, c := range all {
		t.add(name, time.Time{}, float64(c.Count), c.Container, c.Namespace, c.Pod, c.PodUID, c.Type, c.Result)
	}
	return t.bytes()
}
