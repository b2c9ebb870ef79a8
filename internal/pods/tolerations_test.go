package pods

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestTolerates(t *testing.T) {
	taint := &v1.Taint{Key: "example.com/level", Value: "950", Effect: v1.TaintEffectNoSchedule}
	for name, c := range map[string]struct {
		toleration v1.Toleration
		want       bool
	}{
		"everything":        {v1.Toleration{Operator: v1.TolerationOpExists}, true},
		"the key":           {v1.Toleration{Key: "example.com/level", Operator: v1.TolerationOpExists}, true},
		"another key":       {v1.Toleration{Key: "level", Operator: v1.TolerationOpExists}, false},
		"another effect":    {v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}, false},
		"the value":         {v1.Toleration{Key: "example.com/level", Value: "950"}, true},
		"another value":     {v1.Toleration{Key: "example.com/level", Operator: v1.TolerationOpEqual, Value: "900"}, false},
		"more than it":      {v1.Toleration{Key: "example.com/level", Operator: v1.TolerationOpLt, Value: "1000"}, true},
		"less than it":      {v1.Toleration{Key: "example.com/level", Operator: v1.TolerationOpGt, Value: "900"}, true},
		"no less than it":   {v1.Toleration{Key: "example.com/level", Operator: v1.TolerationOpGt, Value: "950"}, false},
		"less than no word": {v1.Toleration{Key: "example.com/level", Operator: v1.TolerationOpGt, Value: "high"}, false},
	} {
		list := []v1.Toleration{{Key: "else"}, c.toleration}
		if got := Tolerates(list, taint); got != nil != c.want || got != nil && got != &list[1] {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
