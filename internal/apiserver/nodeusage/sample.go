package nodeusage

import (
	"bytes"
	"fmt"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Key names a container of a pod.
type Key struct{ Namespace, Pod, Container string }

// point is what somebody had used at one time. start is zero where it is not known.
type point struct {
	at, start time.Time
	// cpu is in seconds of one processor, memory in bytes. Without both there is no point.
	cpu               float64
	memory            float64
	hasCPU, hasMemory bool
}

func (p *point) complete() bool { return p.hasCPU && p.hasMemory && !p.at.IsZero() }

// sample is what an agent has told at one time.
type sample struct {
	// taken is when the agent was asked.
	taken      time.Time
	node       point
	containers map[Key]point
}

// parse reads an agent's resource metrics. A line without a time is of when it was asked. What is not complete is left out.
func parse(text []byte, taken time.Time) (sample, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return sample{}, fmt.Errorf("metrics of resources: %w", err)
	}
	node := &point{}
	containers := map[Key]*point{}
	of := func(m *dto.Metric) *point {
		var k Key
		for _, l := range m.Label {
			switch l.GetName() {
			case "namespace":
				k.Namespace = l.GetValue()
			case "pod":
				k.Pod = l.GetValue()
			case "container":
				k.Container = l.GetValue()
			}
		}
		if containers[k] == nil {
			containers[k] = &point{}
		}
		return containers[k]
	}
	value := func(m *dto.Metric) float64 {
		return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue() // one of them
	}
	cpu := func(p *point, m *dto.Metric) {
		if p.cpu, p.hasCPU, p.at = value(m), true, taken; m.TimestampMs != nil {
			p.at = time.UnixMilli(m.GetTimestampMs())
		}
	}
	memory := func(p *point, m *dto.Metric) { p.memory, p.hasMemory = value(m), true }
	for name, f := range families {
		for _, m := range f.Metric {
			switch name {
			case "node_cpu_usage_seconds_total":
				cpu(node, m)
			case "node_memory_working_set_bytes":
				memory(node, m)
			case "container_cpu_usage_seconds_total":
				cpu(of(m), m)
			case "container_memory_working_set_bytes":
				memory(of(m), m)
			case "container_start_time_seconds":
				of(m).start = time.UnixMicro(int64(value(m) * 1e6))
			}
		}
	}
	s := sample{taken: taken, node: *node, containers: map[Key]point{}}
	for k, p := range containers {
		if p.complete() {
			s.containers[k] = *p
		}
	}
	return s, nil
}

// Used is what somebody uses: processors during Window, until At, in billionths of one; and memory at At, in bytes.
type Used struct {
	At        time.Time
	Window    time.Duration
	NanoCores int64
	Memory    int64
}

// leastWindow is the least time that a rate is made of.
const leastWindow = time.Second / 2

// between is what was used between two points. Of somebody who began after the first one, or anew, it is what was used since. false: nothing can be told.
func between(old, now point) (Used, bool) {
	if !now.complete() {
		return Used{}, false
	}
	began := !now.start.IsZero() && (!old.complete() || now.start.After(old.at) || now.start.After(old.start) && now.cpu < old.cpu)
	switch {
	case began:
		old = point{at: now.start}
	case !old.complete():
		return Used{}, false
	}
	window := now.at.Sub(old.at)
	if window < leastWindow || now.cpu < old.cpu || now.memory < 0 {
		return Used{}, false
	}
	return Used{At: now.at, Window: window, NanoCores: int64((now.cpu - old.cpu) / window.Seconds() * 1e9), Memory: int64(now.memory)}, true
}

// Usage is what a node and the containers on it use. It is shared: nobody changes it.
type Usage struct {
	Node *Used
	// Containers are by pod and name.
	Containers map[PodKey]map[string]Used
}

// PodKey names a pod.
type PodKey struct{ Namespace, Name string }

// usage compares two samples.
func usage(old, now sample) *Usage {
	u := &Usage{Containers: map[PodKey]map[string]Used{}}
	if n, ok := between(old.node, now.node); ok {
		u.Node = &n
	}
	for k, p := range now.containers {
		if used, ok := between(old.containers[k], p); ok {
			pod := PodKey{k.Namespace, k.Pod}
			if u.Containers[pod] == nil {
				u.Containers[pod] = map[string]Used{}
			}
			u.Containers[pod][k.Container] = used
		}
	}
	return u
}
