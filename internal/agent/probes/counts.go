package probes

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/probes/judge"
)

// Buckets are the upper bounds of the histogram of durations, in seconds: Prometheus' own.
var Buckets = [...]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// Series are the counts of one probe since the pod was first probed, over all containers that have replaced each other. They are a kubelet's
// prober_probe_total (labels probe_type, result, container, pod, namespace, pod_uid) and prober_probe_duration_seconds (probe_type, container,
// pod, namespace).
type Series struct {
	Namespace, Pod string
	UID            types.UID
	Container      string
	// Type is the label probe_type: Startup, Liveness or Readiness.
	Type string
	// Successful, Failed and Unknown are counts by the label result: successful, failed and unknown.
	Successful, Failed, Unknown uint64
	// Within counts the successful probes that took at most the same element of Buckets, each including those before it; Seconds is how long all
	// of them took together.
	Within  [len(Buckets)]uint64
	Seconds float64
}

// counted is whose counts they are.
type counted struct {
	container string
	kind      judge.Kind
}

type counts struct {
	labels   Series
	outcomes [judge.Failure + 1]uint64
	within   [len(Buckets) + 1]uint64
	seconds  float64
}

func (p *pod) countsOf(t *Target, k judge.Kind) *counts {
	key := counted{t.Container.Name, k}
	c := p.counts[key]
	if c == nil {
		c = &counts{labels: Series{Namespace: t.Pod.Namespace, Pod: t.Pod.Name, UID: t.Pod.UID, Container: t.Container.Name, Type: k.String()}}
		p.counts[key] = c
	}
	return c
}

func (c *counts) add(o judge.Outcome, took time.Duration) {
	c.outcomes[o]++
	if o == judge.Success {
		seconds := took.Seconds()
		c.seconds += seconds
		c.within[sort.SearchFloat64s(Buckets[:], seconds)]++
	}
}

// Series are those of all pods that are not forgotten, in the order of their names.
func (m *Manager) Series() []Series {
	m.mu.Lock()
	var all []Series
	for _, p := range m.pods {
		for _, c := range p.counts {
			s := c.labels
			s.Successful, s.Failed, s.Unknown, s.Seconds = c.outcomes[judge.Success], c.outcomes[judge.Failure], c.outcomes[judge.NoAnswer], c.seconds
			sum := uint64(0)
			for i := range s.Within {
				sum += c.within[i]
				s.Within[i] = sum
			}
			all = append(all, s)
		}
	}
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b Series) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Container, b.Container),
			cmp.Compare(a.Type, b.Type))
	})
	return all
}
