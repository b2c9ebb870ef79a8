package statefulset

import (
	"math"
	"runtime"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// What a set wants is a number that a user wrote. Nothing is allocated by it, and nothing counts up to it.
func TestHugeNumbers(t *testing.T) {
	huge := func(s *appsv1.StatefulSet) { *s.Spec.Replicas = math.MaxInt32 }
	few := "0:old:ready 1:old:ready 2:old:ready 7:old:running 9:new:failed"
	for _, c := range []struct {
		name             string
		set              *appsv1.StatefulSet
		pods             string
		creates, deletes int
	}{
		{"in order, none is there", set(0, huge), "", 1, 0},
		{"in order, some are there", set(0, huge), "0:new:ready 1:new:ready", 1, 0},
		{"in parallel, none is there", set(0, huge, parallel), "", burst, 0},
		{"in parallel, with gaps", set(0, huge, parallel), few, burst, 0},
		{"in parallel, the last one is there", set(0, huge, parallel), "2147483646:old:ready", burst, 0},
		{"in parallel, any number may be missing", set(0, huge, parallel, unavailable("100%")), few, burst, 4},
		{"a partition above all", set(0, huge, parallel, partition(math.MaxInt32)), few, burst, 0},
		{"ordinals end beyond 31 bits", set(2, parallel, start(math.MaxInt32)), "2147483647:new:ready", 1, 0},
		{"ordinals beyond 31 bits are there", set(2, parallel, start(math.MaxInt32)), "2147483647:new:ready 2147483648:new:ready", 0, 0},
		{"the sum of the largest numbers", set(0, huge, parallel, start(math.MaxInt32)), few, burst, 5},
		{"all go, in order", set(0), "2147483646:new:ready 2147483645:new:ready", 0, 1},
		{"all go, in parallel", set(0, parallel), "2147483646:new:ready 2147483645:new:ready", 0, 2},
		{"all go by a new first ordinal", set(0, parallel, start(math.MaxInt32)), "0:new:ready", 0, 1},
		{"none is updated by hand", set(0, huge, onDelete), "0:old:ready", 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			pods := members(c.pods)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			plan := decide(t, c.set, pods)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
				t.Errorf("a round took %d MiB", took>>20)
			}
			if len(plan.Create) != c.creates || len(plan.Delete) != c.deletes {
				t.Errorf("creates %d and deletes %d, want %d and %d", len(plan.Create), len(plan.Delete), c.creates, c.deletes)
			}
		})
	}
}
