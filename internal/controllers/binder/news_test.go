package binder

import (
	"testing"
	"time"
)

// Of a wait for devices an event tells when it has lasted for a second, and then for what the pod waits by now; of any other it tells at once.
func TestNews(t *testing.T) {
	const ms = time.Millisecond
	begin := time.Now()
	type look struct {
		after   time.Duration
		why     string
		devices bool
		tell    bool
		again   time.Duration
	}
	for name, looks := range map[string][]look{
		"no memory":             {{0, "memory", false, true, 0}, {ms, "memory", false, false, 0}, {2 * ms, "cpu", false, true, 0}},
		"no devices":            {{0, "used up", true, false, 1000 * ms}, {400 * ms, "used up", true, false, 600 * ms}, {1000 * ms, "used up", true, true, 0}, {3000 * ms, "used up", true, false, 0}},
		"a plugin's restart":    {{0, "told before", true, false, 0}, {10 * ms, "no plugin", true, false, 1000 * ms}, {30 * ms, "told before", true, false, 0}, {1010 * ms, "told before", true, false, 0}},
		"the reason of the end": {{0, "no plugin", true, false, 1000 * ms}, {900 * ms, "unhealthy", true, false, 100 * ms}, {1000 * ms, "unhealthy", true, true, 0}},
		"then no memory":        {{0, "no plugin", true, false, 1000 * ms}, {900 * ms, "memory", false, true, 0}},
	} {
		var n news
		for _, l := range looks {
			if tell, again := n.look("p", "told before", l.why, l.devices, begin.Add(l.after)); tell != l.tell || again != l.again {
				t.Errorf("%s: after %v: tell %v, again in %v; want %v, %v", name, l.after, tell, again, l.tell, l.again)
			}
		}
		n.forget("p")
		if len(n.pods) != 0 {
			t.Errorf("%s: %d pods are remembered", name, len(n.pods))
		}
	}
}
