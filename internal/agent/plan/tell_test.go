package plan

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// What lasts is told when it has lasted for a second, as it is then; what passes before is not told, and the last event says what the status says.
func TestDeviceTeller(t *testing.T) {
	status := func(device string) *v1.PodStatus {
		st := Status(given(mains("a"), sandbox("s", 0, true), holds("a", "x/gpu 0 "+device)))
		return &st
	}
	const ms = time.Millisecond
	type look struct {
		at     time.Duration
		device string
		want   string // the reason and the last words of the event
	}
	for name, looks := range map[string][]look{
		"a restart of the plugin":   {{0, "Healthy", ""}, {ms, "Unhealthy gone", ""}, {20 * ms, "Healthy", ""}, {5 * time.Second, "Healthy", ""}},
		"two of them":               {{0, "Unhealthy gone", ""}, {20 * ms, "Healthy", ""}, {990 * ms, "Unhealthy gone", ""}, {1010 * ms, "Unhealthy gone", ""}, {1020 * ms, "Healthy", ""}},
		"it lasts":                  {{0, "Unhealthy gone", ""}, {999 * ms, "Unhealthy gone", ""}, {1000 * ms, "Unhealthy gone", "DeviceUnhealthy gone"}, {2500 * ms, "Unhealthy gone", ""}},
		"it gets another reason":    {{0, "Unhealthy gone", ""}, {25 * ms, "Unhealthy sick", ""}, {1000 * ms, "Unhealthy sick", "DeviceUnhealthy sick"}},
		"it gets one when told":     {{0, "Unhealthy gone", ""}, {1000 * ms, "Unhealthy gone", "DeviceUnhealthy gone"}, {3000 * ms, "Unhealthy sick", ""}, {4000 * ms, "Unhealthy sick", "DeviceUnhealthy sick"}},
		"it never comes to rest":    {{0, "Unhealthy 1", ""}, {400 * ms, "Unhealthy 2", ""}, {800 * ms, "Unhealthy 3", ""}, {1200 * ms, "Unhealthy 4", "DeviceUnhealthy 4"}, {1600 * ms, "Unhealthy 5", ""}},
		"it recovers when told":     {{0, "Unhealthy gone", ""}, {1000 * ms, "Unhealthy gone", "DeviceUnhealthy gone"}, {1100 * ms, "Healthy", ""}, {2100 * ms, "Healthy", "DeviceHealthy again"}},
		"it recovers for a moment":  {{0, "Unhealthy gone", ""}, {1000 * ms, "Unhealthy gone", "DeviceUnhealthy gone"}, {1100 * ms, "Healthy", ""}, {1200 * ms, "Unhealthy gone", ""}, {3000 * ms, "Unhealthy gone", ""}},
		"it goes, and nobody knows": {{0, "Unhealthy gone", ""}, {1000 * ms, "Unhealthy gone", "DeviceUnhealthy gone"}, {2000 * ms, "Unknown gone", ""}, {3000 * ms, "Unknown gone", "DeviceUnknown gone"}},
	} {
		var teller DeviceTeller
		for _, l := range looks {
			events, again := teller.Tell(status("Healthy"), status(l.device), now.Add(l.at))
			got := ""
			for _, e := range events {
				words := strings.Fields(e.Message)
				got += e.Reason + " " + words[len(words)-1]
			}
			if got != l.want {
				t.Errorf("%s: after %v: %q, want %q", name, l.at, got, l.want)
			}
			if !again.IsZero() && !again.After(now.Add(l.at)) {
				t.Errorf("%s: after %v: to be asked again at once", name, l.at)
			}
		}
	}
}

func TestWaitTeller(t *testing.T) {
	var w WaitTeller
	look := func(after time.Duration, want string) {
		t.Helper()
		got := ""
		if e, _ := w.Tell(now.Add(after)); e != nil {
			got = e.Message
		}
		if got != want {
			t.Errorf("after %v: %q, want %q", after, got, want)
		}
	}
	look(0, "")
	w.Failed(Event{Message: "in use"}, now)
	look(115*time.Millisecond, "")
	w.Over() // the pod before has given its devices back
	look(2*time.Second, "")
	w.Failed(Event{Message: "in use"}, now.Add(10*time.Second))
	w.Failed(Event{Message: "unhealthy"}, now.Add(10500*time.Millisecond))
	if _, again := w.Tell(now.Add(10600 * time.Millisecond)); !again.Equal(now.Add(11 * time.Second)) {
		t.Errorf("to be asked again at %v", again)
	}
	look(11*time.Second, "unhealthy")
	look(12*time.Second, "")
	w.Failed(Event{Message: "unhealthy"}, now.Add(13*time.Second)) // what is met with again is told again
	look(13*time.Second, "unhealthy")
}
