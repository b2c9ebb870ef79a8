package autoscaler

import (
	"fmt"
	"math"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

// at are entries by how many seconds ago they were.
type at map[int]int32

func entries(of at) (all []entry) {
	for seconds, n := range of {
		all = append(all, entry{n, now.Add(-time.Duration(seconds) * time.Second)})
	}
	return all
}

func history(recommendations, ups, downs at) History {
	return History{recommendations: entries(recommendations), ups: entries(ups), downs: entries(downs)}
}

// rule is a policy: "4 pods in 15", "50 percent in 60".
func rule(t *testing.T, window int32, pick autoscalingv2.ScalingPolicySelect, policies ...string) *autoscalingv2.HPAScalingRules {
	r := &autoscalingv2.HPAScalingRules{SelectPolicy: &pick}
	if window >= 0 {
		r.StabilizationWindowSeconds = &window
	}
	for _, policy := range policies {
		var p autoscalingv2.HPAScalingPolicy
		var of string
		if _, err := fmt.Sscanf(policy, "%d %s in %d", &p.Value, &of, &p.PeriodSeconds); err != nil {
			t.Fatalf("%s: %v", policy, err)
		}
		p.Type = map[string]autoscalingv2.HPAScalingPolicyType{"pods": autoscalingv2.PodsScalingPolicy, "percent": autoscalingv2.PercentScalingPolicy}[of]
		r.Policies = append(r.Policies, p)
	}
	return r
}

func TestNormalize(t *testing.T) {
	const most, least, none = autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect, autoscalingv2.DisabledPolicySelect
	const ready, fits = "ReadyForNewScale", "DesiredWithinRange"
	up := func(rules *autoscalingv2.HPAScalingRules) *autoscalingv2.HorizontalPodAutoscalerBehavior {
		return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules}
	}
	down := func(rules *autoscalingv2.HPAScalingRules) *autoscalingv2.HorizontalPodAutoscalerBehavior {
		return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: rules}
	}
	for _, c := range []struct {
		name          string
		behavior      *autoscalingv2.HorizontalPodAutoscalerBehavior
		current, next int32
		history       History
		want          string
	}{
		{"as it is", nil, 5, 5, History{}, "5 " + ready + " " + fits},
		{"more", nil, 5, 8, History{}, "8 " + ready + " " + fits},
		{"fewer", nil, 5, 3, History{}, "3 " + ready + " " + fits},
		{"at most twice as many", nil, 5, 11, History{}, "10 " + ready + " ScaleUpLimit"},
		{"or four", nil, 1, 9, History{}, "4 " + ready + " ScaleUpLimit"},
		{"more than there may be", nil, 60, 110, History{}, "100 " + ready + " TooManyReplicas"},
		{"fewer than there may be", nil, 5, 0, History{}, "2 " + ready + " TooFewReplicas"},
		{"more was recommended before", nil, 8, 3, history(at{200: 6, 10: 4}, nil, nil), "6 ScaleDownStabilized " + fits},
		{"long before", nil, 8, 3, history(at{300: 6, 10: 4}, nil, nil), "4 ScaleDownStabilized " + fits},
		{"more was recommended than there is", nil, 5, 3, history(at{200: 8}, nil, nil), "8 ScaleDownStabilized " + fits},
		{"less was recommended before", nil, 5, 8, history(at{10: 4}, nil, nil), "8 " + ready + " " + fits},
		{"what was done is of no matter", nil, 5, 10, history(nil, at{1: 5}, at{2: 50}), "10 " + ready + " " + fits},

		{"so many pods", up(rule(t, 0, most, "3 pods in 60")), 5, 20, History{}, "8 " + ready + " ScaleUpLimit"},
		{"so many pods a minute", up(rule(t, 0, most, "3 pods in 60")), 8, 20, history(nil, at{30: 2, 61: 9}, nil), "9 " + ready + " ScaleUpLimit"},
		{"that minute was used up", up(rule(t, 0, most, "3 pods in 60")), 8, 20, history(nil, at{30: 3}, nil), "8 " + ready + " ScaleUpLimit"},
		{"it was used up and more", up(rule(t, 0, most, "3 pods in 60")), 8, 20, history(nil, at{30: 7}, nil), "8 " + ready + " ScaleUpLimit"},
		{"what went in that minute may come back", up(rule(t, 0, most, "3 pods in 60")), 8, 20, history(nil, nil, at{30: 4}), "15 " + ready + " ScaleUpLimit"},
		{"a percentage", up(rule(t, 0, most, "50 percent in 60")), 10, 30, History{}, "15 " + ready + " ScaleUpLimit"},
		{"a percentage of what was then", up(rule(t, 0, most, "50 percent in 60")), 12, 30, history(nil, at{30: 2}, nil), "15 " + ready + " ScaleUpLimit"},
		{"a percentage is rounded up", up(rule(t, 0, most, "10 percent in 60")), 3, 30, History{}, "4 " + ready + " ScaleUpLimit"},
		{"a percentage that needs no rounding", up(rule(t, 0, most, "10 percent in 60")), 10, 30, History{}, "11 " + ready + " ScaleUpLimit"},
		{"the larger of two", up(rule(t, 0, most, "4 pods in 60", "100 percent in 60")), 3, 50, History{}, "7 " + ready + " ScaleUpLimit"},
		{"the larger of two, with more pods", up(rule(t, 0, most, "4 pods in 60", "100 percent in 60")), 30, 90, History{}, "60 " + ready + " ScaleUpLimit"},
		{"the smaller of two", up(rule(t, 0, least, "4 pods in 60", "100 percent in 60")), 3, 50, History{}, "6 " + ready + " ScaleUpLimit"},
		{"never", up(rule(t, 0, none, "4 pods in 60")), 3, 50, History{}, "3 " + ready + " ScaleUpLimit"},
		{"not more than there may be", up(rule(t, 0, most, "900 percent in 60")), 60, 200, History{}, "100 " + ready + " TooManyReplicas"},
		{"within all", up(rule(t, 0, most, "900 percent in 60")), 10, 50, History{}, "50 " + ready + " " + fits},
		{"less was recommended in the window", up(rule(t, 60, most, "900 percent in 60")), 10, 50, history(at{30: 20, 61: 5}, nil, nil), "20 ScaleUpStabilized " + fits},
		{"much less was", up(rule(t, 60, most, "900 percent in 60")), 10, 50, history(at{30: 3}, nil, nil), "10 ScaleUpStabilized " + fits},
		{"a behavior of one direction leaves the other as it is", up(rule(t, 0, none, "1 pods in 60")), 10, 3, history(at{200: 6}, nil, nil), "6 ScaleDownStabilized " + fits},
		{"policies larger than can be counted", up(rule(t, 0, most, fmt.Sprintf("%d percent in 60", math.MaxInt32))), 90, 95, History{}, "95 " + ready + " " + fits},

		{"so many pods fewer", down(rule(t, 0, most, "3 pods in 60")), 20, 5, History{}, "17 " + ready + " ScaleDownLimit"},
		{"so many pods fewer a minute", down(rule(t, 0, most, "3 pods in 60")), 18, 5, history(nil, nil, at{30: 2, 61: 9}), "17 " + ready + " ScaleDownLimit"},
		{"that minute was used up", down(rule(t, 0, most, "3 pods in 60")), 17, 5, history(nil, nil, at{30: 5}), "17 " + ready + " ScaleDownLimit"},
		{"what came in that minute may go", down(rule(t, 0, most, "3 pods in 60")), 20, 5, history(nil, at{30: 4}, nil), "13 " + ready + " ScaleDownLimit"},
		{"a percentage fewer", down(rule(t, 0, most, "20 percent in 60")), 10, 2, History{}, "8 " + ready + " ScaleDownLimit"},
		{"a percentage fewer is rounded for the change", down(rule(t, 0, most, "10 percent in 60")), 5, 2, History{}, "4 " + ready + " ScaleDownLimit"},
		{"the larger change", down(rule(t, 0, most, "1 pods in 60", "50 percent in 60")), 10, 2, History{}, "5 " + ready + " ScaleDownLimit"},
		{"the smaller change", down(rule(t, 0, least, "1 pods in 60", "50 percent in 60")), 10, 2, History{}, "9 " + ready + " ScaleDownLimit"},
		{"never fewer", down(rule(t, 0, none, "1 pods in 60")), 10, 2, History{}, "10 " + ready + " ScaleDownLimit"},
		{"not fewer than there may be", down(rule(t, 0, most, "100 percent in 15")), 10, 0, History{}, "2 " + ready + " TooFewReplicas"},
		{"more was recommended in the window", down(rule(t, 60, most, "100 percent in 15")), 10, 3, history(at{30: 6, 61: 9}, nil, nil), "6 ScaleDownStabilized " + fits},
		{"more was recommended than there is, which is kept", down(rule(t, 60, most, "100 percent in 15")), 10, 3, history(at{30: 15}, nil, nil), "10 ScaleDownStabilized " + fits},
		{"the window that is not said is of five minutes", down(rule(t, -1, most, "100 percent in 15")), 10, 3, history(at{299: 7, 300: 9}, nil, nil), "7 ScaleDownStabilized " + fits},
		{"a window of more pods does not hold fewer", &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp: rule(t, 600, most, "100 percent in 15"), ScaleDown: rule(t, 0, most, "100 percent in 15"),
		}, 10, 3, history(at{30: 15, 40: 2}, nil, nil), "3 " + ready + " " + fits},
		{"what the API server fills in", &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp: rule(t, 0, most, "4 pods in 15", "100 percent in 15"), ScaleDown: rule(t, -1, most, "100 percent in 15"),
		}, 1, 50, History{}, "5 " + ready + " ScaleUpLimit"},
		{"it may say nothing", &autoscalingv2.HorizontalPodAutoscalerBehavior{}, 1, 50, History{}, "5 " + ready + " ScaleUpLimit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := normalize(c.behavior, size{2, 100, c.current}, c.next, c.history, now)
			if got := fmt.Sprintf("%d %s %s", v.replicas, v.able.reason, v.limited.reason); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if (v.limited.status == corev1.ConditionTrue) == (v.limited.reason == fits) || v.able.status != corev1.ConditionTrue || v.able.message == "" || v.limited.message == "" {
				t.Errorf("%+v", v)
			}
		})
	}
}

// TestHistory: what was is not changed by what comes, and forgotten when nobody can ask for it any more.
func TestHistory(t *testing.T) {
	old := history(at{3600: 1, 3599: 2}, at{4000: 3}, nil)
	h := old.recommend(7, now).changed(2, 5, now).changed(5, 1, now)
	if len(h.recommendations) != 2 || h.recommendations[1] != (entry{7, now}) || len(h.ups) != 1 || h.ups[0].n != 3 || len(h.downs) != 1 || h.downs[0].n != 4 {
		t.Errorf("%+v", h)
	}
	if len(old.recommendations) != 2 || len(old.ups) != 1 || old.ups[0].n != 3 || old.downs != nil {
		t.Errorf("the old one is %+v", old)
	}
}

// TestNormalizeHuge: twice as many, and sums of changes, are more than an int32 holds.
func TestNormalizeHuge(t *testing.T) {
	const huge = math.MaxInt32
	percent := func(n int32) *autoscalingv2.HPAScalingRules {
		return &autoscalingv2.HPAScalingRules{Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PercentScalingPolicy, Value: n, PeriodSeconds: 60}}}
	}
	for name, c := range map[string]struct {
		behavior      *autoscalingv2.HorizontalPodAutoscalerBehavior
		current, next int32
		history       History
		want          int32
	}{
		"twice as many":            {nil, huge - 10, huge, History{}, huge},
		"any share of more":        {&autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: percent(huge)}, huge / 2, huge, History{}, huge},
		"any share of fewer":       {&autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: percent(huge)}, huge, 2, History{}, 2},
		"many changes in a period": {&autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: percent(100)}, 10, 20, history(nil, nil, at{1: huge, 2: huge, 3: huge}), 20},
	} {
		t.Run(name, func(t *testing.T) {
			if v := normalize(c.behavior, size{2, huge, c.current}, c.next, c.history, now); v.replicas != c.want {
				t.Errorf("got %d, want %d (%+v)", v.replicas, c.want, v.limited)
			}
		})
	}
}
