package autoscaler

import (
	"errors"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/pods/allocated"
)

const (
	// cpuInitialization is for how long after its start what a pod uses of the processors says little: it may be busy with starting.
	cpuInitialization = 5 * time.Minute
	// initialReadiness is within which time after its start a pod that becomes not ready is one that never was ready.
	initialReadiness = 30 * time.Second
)

// Sample is what a metric says of a pod.
type Sample struct {
	// Value is in thousandths.
	Value int64
	// At is the end of the Window that was measured.
	At     time.Time
	Window time.Duration
}

// tolerance is by which share of the target the usage may be below or above it without any change.
type tolerance struct{ down, up float64 }

func (t tolerance) covers(ratio float64) bool { return 1-t.down <= ratio && ratio <= 1+t.up }

// pool is the pods that are scaled, and what their number depends on beside the metric.
type pool struct {
	pods []*corev1.Pod
	// wanted and running are how many pods the target wants now, and how many it says that it has.
	wanted, running int32
	tolerance       tolerance
	now             time.Time
}

var (
	errNoPods    = errors.New("no pods returned by selector while calculating replica count")
	errNoSamples = errors.New("did not receive metrics for targeted pods (pods might be unready)")
	errNoRequest = errors.New("no metrics returned matched known pods")
)

// groups are the pods of a pool by what their samples are good for.
type groups struct {
	// counted is the number of pods whose samples count.
	counted int
	// unready are those that do not work yet, missing those of which nothing was said. Pods that are going are in none of them.
	unready, missing map[string]bool
	// samples are those that count.
	samples map[string]Sample
}

// group sorts the pods. resource is the one that was measured; "": it is another metric.
func (p pool) group(samples map[string]Sample, resource corev1.ResourceName) (groups, error) {
	if len(p.pods) == 0 {
		return groups{}, errNoPods
	}
	g := groups{unready: map[string]bool{}, missing: map[string]bool{}, samples: map[string]Sample{}}
	for name, sample := range samples {
		g.samples[name] = sample
	}
	for _, pod := range p.pods {
		sample, has := samples[pod.Name]
		switch {
		case pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed:
			delete(g.samples, pod.Name)
		case pod.Status.Phase == corev1.PodPending:
			g.unready[pod.Name] = true
			delete(g.samples, pod.Name)
		case !has:
			g.missing[pod.Name] = true
		case resource == corev1.ResourceCPU && p.starts(pod, sample):
			g.unready[pod.Name] = true
			delete(g.samples, pod.Name)
		default:
			g.counted++
		}
	}
	if len(g.samples) == 0 {
		return groups{}, errNoSamples
	}
	return g, nil
}

// starts says whether what a pod uses of the processors may be for its start.
func (p pool) starts(pod *corev1.Pod, sample Sample) bool {
	ready := pods.Condition(&pod.Status, corev1.PodReady)
	if ready == nil || pod.Status.StartTime == nil {
		return true
	}
	not := ready.Status == corev1.ConditionFalse
	if pod.Status.StartTime.Add(cpuInitialization).After(p.now) {
		// Not ready, or measured in part before it was.
		return not || sample.At.Before(ready.LastTransitionTime.Add(sample.Window))
	}
	return not && pod.Status.StartTime.Add(initialReadiness).After(ready.LastTransitionTime.Time)
}

// measure compares samples with a target.
type measure struct {
	// ratio is the usage divided by the target.
	ratio func(samples map[string]Sample) (float64, error)
	// whole is what a pod counts for of which nothing was said, where the others need fewer pods: as if it did its full share.
	whole func(pod string) int64
}

// by is how many pods the samples ask for. What was not measured never makes a change larger, and never turns it round.
func (p pool) by(g groups, m measure) (int32, error) {
	ratio, err := m.ratio(g.samples)
	if err != nil {
		return 0, err
	}
	busy := ratio > 1
	if len(g.missing) == 0 && !(busy && len(g.unready) > 0) {
		if p.tolerance.covers(ratio) {
			return p.wanted, nil
		}
		return ceil(ratio * float64(g.counted)), nil
	}
	for name := range g.missing {
		switch {
		case ratio < 1:
			g.samples[name] = Sample{Value: m.whole(name)}
		case busy:
			g.samples[name] = Sample{}
		}
	}
	if busy {
		for name := range g.unready {
			g.samples[name] = Sample{}
		}
	}
	cautious, err := m.ratio(g.samples)
	if err != nil {
		return 0, err
	}
	if p.tolerance.covers(cautious) || ratio < 1 && cautious > 1 || busy && cautious < 1 {
		return p.wanted, nil
	}
	n := ceil(cautious * float64(len(g.samples)))
	if cautious < 1 && n > p.wanted || cautious > 1 && n < p.wanted {
		return p.wanted, nil
	}
	return n, nil
}

// used is what was found out beside a number of pods: how many percent of their requests pods use on average, and how much, in thousandths.
type used struct {
	percent int32
	average int64
}

// byUtilization is how many pods use so many percent of what they request.
func (p pool) byUtilization(samples map[string]Sample, resource corev1.ResourceName, container string, target int32) (int32, used, error) {
	g, err := p.group(samples, resource)
	if err != nil {
		return 0, used{}, err
	}
	requests := map[string]int64{}
	for _, pod := range p.pods {
		if requests[pod.Name], err = request(pod, container, resource); err != nil {
			return 0, used{}, err
		}
	}
	now, err := utilization(g.samples, requests)
	if err != nil {
		return 0, used{}, err
	}
	n, err := p.by(g, measure{
		ratio: func(of map[string]Sample) (float64, error) {
			u, err := utilization(of, requests)
			return float64(u.percent) / float64(target), err
		},
		whole: func(pod string) int64 { return requests[pod] * int64(max(100, target)) / 100 },
	})
	return n, now, err
}

// utilization is what pods use of their requests. Samples of others do not count.
func utilization(samples map[string]Sample, requests map[string]int64) (used, error) {
	var sum, of, n int64
	for name, s := range samples {
		if request, has := requests[name]; has {
			sum, of, n = sum+s.Value, of+request, n+1
		}
	}
	if of == 0 {
		return used{}, errNoRequest
	}
	return used{int32(min(sum*100/of, math.MaxInt32)), sum / n}, nil
}

// byAverage is how many pods have so much of a metric on average, in thousandths.
func (p pool) byAverage(samples map[string]Sample, resource corev1.ResourceName, target int64) (int32, used, error) {
	g, err := p.group(samples, resource)
	if err != nil {
		return 0, used{}, err
	}
	now := average(g.samples)
	n, err := p.by(g, measure{
		ratio: func(of map[string]Sample) (float64, error) { return float64(average(of)) / float64(target), nil },
		whole: func(string) int64 { return target },
	})
	return n, used{average: now}, err
}

func average(samples map[string]Sample) (sum int64) {
	for _, s := range samples {
		sum += s.Value
	}
	return sum / int64(len(samples))
}

// byValue is how many pods bring a metric to its target that is not one of pods, but becomes less the more of them there are.
func (p pool) byValue(value, target int64) (int32, error) {
	ratio := float64(value) / float64(target)
	if p.tolerance.covers(ratio) {
		return p.wanted, nil
	}
	if len(p.pods) == 0 {
		return 0, fmt.Errorf("unable to calculate ready pods: %w", errNoPods)
	}
	ready := 0
	for _, pod := range p.pods {
		if pod.Status.Phase == corev1.PodRunning && pods.IsTrue(&pod.Status, corev1.PodReady) {
			ready++
		}
	}
	return ceil(ratio * float64(ready)), nil
}

// byShare is how many pods have so much of a metric each, if they share it, and how much each one has now.
func (p pool) byShare(value, target int64) (n int32, each int64) {
	if p.running == 0 {
		return ceil(float64(value) / float64(target)), value
	}
	n = p.running
	if !p.tolerance.covers(float64(value) / (float64(target) * float64(n))) {
		n = ceil(float64(value) / float64(target))
	}
	if each = value / int64(p.running); value%int64(p.running) > 0 {
		each++
	}
	return n, each
}

// sum adds values, of which there may be more than fit.
func sum(values []int64) (total int64) {
	for _, v := range values {
		if v > 0 && total > math.MaxInt64-v {
			return math.MaxInt64
		}
		total += v
	}
	return total
}

func ceil(n float64) int32 { return truncated(math.Ceil(n)) }

// truncated is a number of pods without parts of one, and the largest or smallest one that there is where that is not enough.
func truncated(n float64) int32 { return int32(max(math.MinInt32, min(n, math.MaxInt32))) }

// request is what a pod, or one container of it, requests of a resource, in thousandths.
func request(pod *corev1.Pod, container string, resource corev1.ResourceName) (int64, error) {
	has := allocated.Of(pod)
	if container == "" && has.RequestsAsWhole() {
		of, is := has.Requests()[resource]
		if !is {
			return 0, fmt.Errorf("missing pod-level request for %s in Pod %s", resource, pod.Name)
		}
		return of.MilliValue(), nil
	}
	var sum int64
	found := false
	for role, c := range pods.Containers(&pod.Spec) {
		if !role.Main() || container != "" && c.Name != container {
			continue
		}
		of, is := has.Container(c.Name).Requests[resource]
		if !is {
			return 0, fmt.Errorf("missing request for %s in container %s of Pod %s", resource, c.Name, pod.Name)
		}
		found = true
		sum += of.MilliValue()
	}
	if container != "" && !found {
		return 0, fmt.Errorf("container %s not found in Pod %s", container, pod.Name)
	}
	return sum, nil
}
