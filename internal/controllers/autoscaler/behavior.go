package autoscaler

import (
	"math"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

const (
	// stabilization is for how long the highest recommendation counts when pods are to become fewer, where an autoscaler does not say.
	stabilization = 5 * time.Minute
	// remembered is the longest time that an autoscaler can look back.
	remembered = time.Hour
	// Without a behavior pods become at most twice as many at a time, or so many.
	fewPods = 4
)

// History is what an autoscaler has recommended and done. Nothing of it outlives the process: who begins anew has recommended what there is.
type History struct {
	recommendations []entry
	// ups and downs are by how many pods it has changed the number.
	ups, downs []entry
}

type entry struct {
	n  int32
	at time.Time
}

// recommend is a history with one more recommendation.
func (h History) recommend(n int32, now time.Time) History {
	h.recommendations = append(newer(h.recommendations, now), entry{n, now})
	return h
}

// changed is a history with one more change.
func (h History) changed(from, to int32, now time.Time) History {
	if to > from {
		h.ups = append(newer(h.ups, now), entry{to - from, now})
	} else {
		h.downs = append(newer(h.downs, now), entry{from - to, now})
	}
	return h
}

// newer are the entries that still count, in a slice of their own.
func newer(all []entry, now time.Time) []entry {
	return slices.DeleteFunc(slices.Clone(all), func(e entry) bool { return now.Sub(e.at) >= remembered })
}

// since is the sum of the entries of the last so many seconds.
func since(all []entry, seconds int32, now time.Time) (sum int64) {
	for _, e := range all {
		if now.Sub(e.at) < time.Duration(seconds)*time.Second {
			sum += int64(e.n)
		}
	}
	return sum
}

// size is between which numbers pods are scaled, and from which.
type size struct{ least, most, current int32 }

// verdict is how many pods there are to be in the end, and why it is not what was recommended.
type verdict struct {
	replicas      int32
	able, limited condition
}

// normalize makes of what the metrics recommend what is done: not less for a while than was recommended before, and not faster than the behavior lets it.
// h does not have the recommendation yet.
func normalize(behavior *autoscalingv2.HorizontalPodAutoscalerBehavior, s size, recommended int32, h History, now time.Time) verdict {
	var v verdict
	v.able = condition{autoscalingv2.AbleToScale, corev1.ConditionTrue, "ReadyForNewScale", "recommended size matches current size"}
	var steady int32
	var limit limits
	if behavior == nil {
		steady = highest(h, recommended, stabilization, now)
		fastest := truncated(2 * float64(max(s.current, fewPods/2)))
		limit = limits{most: min(s.most, fastest), least: s.least, fast: s.most > fastest}
	} else {
		up, down := rules(behavior.ScaleUp, true), rules(behavior.ScaleDown, false)
		steady = min(max(s.current, lowest(h, recommended, up.window, now)), highest(h, recommended, down.window, now))
		limit = behave(s, steady, up, down, h, now)
	}
	if steady != recommended {
		if behavior == nil || recommended < s.current {
			v.able.reason, v.able.message = "ScaleDownStabilized", "recent recommendations were higher than current one, applying the highest recent recommendation"
		} else {
			v.able.reason, v.able.message = "ScaleUpStabilized", "recent recommendations were lower than current one, applying the lowest recent recommendation"
		}
	}
	v.replicas, v.limited = limit.apply(steady)
	return v
}

func highest(h History, n int32, window time.Duration, now time.Time) int32 {
	for _, e := range h.recommendations {
		if now.Sub(e.at) < window {
			n = max(n, e.n)
		}
	}
	return n
}

func lowest(h History, n int32, window time.Duration, now time.Time) int32 {
	for _, e := range h.recommendations {
		if now.Sub(e.at) < window {
			n = min(n, e.n)
		}
	}
	return n
}

// limits are between which numbers the next one has to be. fast and slow: it is for the speed of the change, and not for what the autoscaler says is enough.
type limits struct {
	least, most int32
	fast, slow  bool
}

func (l limits) apply(n int32) (int32, condition) {
	limited := condition{autoscalingv2.ScalingLimited, corev1.ConditionTrue, "", ""}
	switch {
	case n < l.least && l.slow:
		limited.reason, limited.message = "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"
		return l.least, limited
	case n < l.least:
		limited.reason, limited.message = "TooFewReplicas", "the desired replica count is less than the minimum replica count"
		return l.least, limited
	case n > l.most && l.fast:
		limited.reason, limited.message = "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"
		return l.most, limited
	case n > l.most:
		limited.reason, limited.message = "TooManyReplicas", "the desired replica count is more than the maximum replica count"
		return l.most, limited
	}
	return n, condition{autoscalingv2.ScalingLimited, corev1.ConditionFalse, "DesiredWithinRange", "the desired count is within the acceptable range"}
}

// behave are the limits of a behavior for a step towards a number of pods.
func behave(s size, towards int32, up, down direction, h History, now time.Time) limits {
	l := limits{least: math.MinInt32, most: math.MaxInt32}
	switch {
	case towards > s.current:
		fastest := max(up.bound(s.current, h, now), s.current)
		l.most, l.fast = min(s.most, fastest), fastest < s.most
	case towards < s.current:
		slowest := min(down.bound(s.current, h, now), s.current)
		l.least, l.slow = max(s.least, slowest), slowest > s.least
	}
	return l
}

// direction is a behavior's rules for more pods, or for fewer.
type direction struct {
	up       bool
	window   time.Duration
	pick     autoscalingv2.ScalingPolicySelect
	policies []autoscalingv2.HPAScalingPolicy
}

// rules are those of a behavior. What it does not say the API server has filled in, but for the window of fewer pods.
func rules(of *autoscalingv2.HPAScalingRules, up bool) direction {
	d := direction{up: up, pick: autoscalingv2.MaxChangePolicySelect}
	if !up {
		d.window = stabilization
	}
	if of == nil {
		d.policies = []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}}
		if d.up {
			d.policies = append(d.policies, autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: fewPods, PeriodSeconds: 15})
		}
		return d
	}
	if of.StabilizationWindowSeconds != nil {
		d.window = time.Duration(*of.StabilizationWindowSeconds) * time.Second
	}
	if of.SelectPolicy != nil {
		d.pick = *of.SelectPolicy
	}
	d.policies = of.Policies
	return d
}

// bound is how far the policies let the number of pods go. Each looks back to what it was when its period began.
func (d direction) bound(current int32, h History, now time.Time) int32 {
	if d.pick == autoscalingv2.DisabledPolicySelect {
		return current
	}
	var bounds []int32
	for _, p := range d.policies {
		begin := int64(current) - since(h.ups, p.PeriodSeconds, now) + since(h.downs, p.PeriodSeconds, now)
		change := float64(p.Value)
		if p.Type == autoscalingv2.PercentScalingPolicy {
			change = float64(begin) * change / 100
		}
		if d.up {
			bounds = append(bounds, ceil(float64(begin)+change)) // or a few percent of a few pods were never a pod
		} else {
			bounds = append(bounds, truncated(float64(begin)-change))
		}
	}
	if len(bounds) == 0 {
		return current
	}
	if d.up == (d.pick == autoscalingv2.MinChangePolicySelect) {
		return slices.Min(bounds)
	}
	return slices.Max(bounds)
}
