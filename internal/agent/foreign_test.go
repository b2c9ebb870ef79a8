package agent

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/test/crifake"
)

// TestWithoutEvents: pods live and die on runtimes that tell no events: one whose stream ends at once, as CRI-O's does by default, one without a stream, as
// containerd 1.6, and one that says nothing.
func TestWithoutEvents(t *testing.T) {
	for name, like := range map[string]crifake.EventStream{"over": crifake.EventsOver, "missing": crifake.EventsMissing, "silent": crifake.EventsSilent} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.stop()
			b.rt.Events(like)
			b.start()
			b.create(pod("p"))
			first := b.running("a")
			b.phase("p", v1.PodRunning) // now nobody looks at it any more
			b.rt.Exit(first, 1)
			second := b.running("a")
			b.status("p", "restarted", isRestarted)
			b.delete("p", 1)
			b.noPod("p")
			if first == second {
				t.Errorf("%s runs again", first)
			}
		})
	}
}

// TestWatchersHearOfActions: who follows a container hears of its end by the worker's own doing, also where no list has ever shown it.
func TestWatchersHearOfActions(t *testing.T) {
	p := newRoster(rosterConfig{Watchers: newWatchers()})
	ticks, stop := p.Watch("u")
	defer stop()
	p.tell("other")
	select {
	case <-ticks:
		t.Error("told of another pod")
	default:
	}
	p.tell("u")
	p.tell("u") // nobody waits for those who have not looked yet
	<-ticks
}
