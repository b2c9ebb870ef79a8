package harness

import (
	"testing"
	"time"
)

// Eventually asks until the condition holds, and fails the test with what was seen last when it does not within a minute
// (times SlowFactor). It is for what tells nobody of its changes: what the condition asks is a process or a request.
func Eventually(t testing.TB, what string, cond func() (ok bool, seen string)) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second * SlowFactor())
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, seen := cond()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within the time; last seen: %s", what, seen)
		}
		<-tick.C
	}
}
