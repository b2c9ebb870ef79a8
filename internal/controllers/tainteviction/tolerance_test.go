package tainteviction

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

func TestTolerance(t *testing.T) {
	taint := func(key string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Effect: effect}
	}
	toleration := func(key string, seconds ...int64) corev1.Toleration {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
		if len(seconds) > 0 {
			t.TolerationSeconds = &seconds[0]
		}
		return t
	}
	a, b := taint("a", corev1.TaintEffectNoExecute), taint("b", corev1.TaintEffectNoExecute)
	for name, c := range map[string]struct {
		tolerations []corev1.Toleration
		taints      []corev1.Taint
		stays       time.Duration
		bounded     bool
	}{
		"no taint":              {nil, nil, 0, false},
		"another effect":        {nil, []corev1.Taint{taint("a", corev1.TaintEffectNoSchedule), taint("a", corev1.TaintEffectPreferNoSchedule)}, 0, false},
		"not tolerated":         {nil, []corev1.Taint{a}, 0, true},
		"one of two":            {[]corev1.Toleration{toleration("a")}, []corev1.Taint{a, b}, 0, true},
		"both":                  {[]corev1.Toleration{toleration("a"), toleration("b")}, []corev1.Taint{a, b}, 0, false},
		"all":                   {[]corev1.Toleration{toleration("")}, []corev1.Taint{a, b}, 0, false},
		"for a time":            {[]corev1.Toleration{toleration("a", 30)}, []corev1.Taint{a}, 30 * time.Second, true},
		"for the shorter":       {[]corev1.Toleration{toleration("a", 30), toleration("b", 20)}, []corev1.Taint{a, b}, 20 * time.Second, true},
		"for one and for ever":  {[]corev1.Toleration{toleration("a", 30), toleration("b")}, []corev1.Taint{a, b}, 30 * time.Second, true},
		"of what is not needed": {[]corev1.Toleration{toleration("a", 30), toleration("b", 1)}, []corev1.Taint{a}, 30 * time.Second, true},
		"for no time":           {[]corev1.Toleration{toleration("a", 0)}, []corev1.Taint{a}, 0, true},
		"for less than none":    {[]corev1.Toleration{toleration("a", -5)}, []corev1.Taint{a}, 0, true},
		"for an age":            {[]corev1.Toleration{toleration("a", math.MaxInt64)}, []corev1.Taint{a}, pods.Seconds(math.MaxInt64), true},
		"the first counts":      {[]corev1.Toleration{toleration("a", 30), toleration("")}, []corev1.Taint{a}, 30 * time.Second, true},
	} {
		if stays, bounded := tolerance(c.tolerations, c.taints); stays != c.stays || bounded != c.bounded {
			t.Errorf("%s: %s, bounded %v; want %s, %v", name, stays, bounded, c.stays, c.bounded)
		}
	}
}
