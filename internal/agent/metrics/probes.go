package metrics

import (
	"time"

	"monopod.dev/monopod/internal/agent/probes"
)

// Probes writes /metrics/probes.
func Probes(series []probes.Series) []byte {
	const total, duration = "prober_probe_total", "prober_probe_duration_seconds"
	t := newText()
	t.describe(total, counter, "Number of results of a startup, liveness or readiness probe of a container, by result",
		"container", "namespace", "pod", "pod_uid", "probe_type", "result")
	t.describe(duration, histogram, "How long successful probes of a container took, in seconds", "container", "namespace", "pod", "probe_type", "le")
	for i := range series {
		s := &series[i]
		for _, r := range []struct {
			result string
			count  uint64
		}{{"successful", s.Successful}, {"failed", s.Failed}, {"unknown", s.Unknown}} {
			if r.count > 0 {
				t.add(total, time.Time{}, float64(r.count), s.Container, s.Namespace, s.Pod, string(s.UID), s.Type, r.result)
			}
		}
		if s.Successful > 0 {
			t.histogram(duration, probes.Buckets[:], s.Within[:], s.Successful, s.Seconds, s.Container, s.Namespace, s.Pod, s.Type)
		}
	}
	return t.bytes()
}
