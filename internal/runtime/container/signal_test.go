package container

import (
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestParseSignal(t *testing.T) {
	for name, want := range map[string]int{"": 15, "TERM": 15, "SIGTERM": 15, "sigusr1": 10, "9": 9, "SIGRTMIN": 34, "RTMIN+3": 37, "SIGRTMIN+3": 37,
		"RTMINPLUS3": 37, "SIGRTMAX-1": 63, "RTMAXMINUS2": 62, "64": 64} {
		if got, err := parseSignal(name); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", name, got, err, want)
		}
	}
	for _, name := range []string{"0", "65", "-1", "NOPE", "SIGRTMIN+99", "RTMIN-1", "SIGRTMAX+1", "RTMINx", "SIG"} {
		if got, err := parseSignal(name); err == nil {
			t.Errorf("%q: %d", name, got)
		}
	}
}

// TestCRISignals: each signal that CRI knows can be sent, and is told by its name.
func TestCRISignals(t *testing.T) {
	for n, name := range cri.Signal_name {
		asked := cri.Signal(n)
		if asked == cri.Signal_SIGNAL_RUNTIME_DEFAULT {
			continue
		}
		number, _, err := StopSignal(&cri.ContainerConfig{StopSignal: asked}, "SIGUSR1")
		if got := CRISignal(number, asked); err != nil || got != asked || number < 1 {
			t.Errorf("%s: %d, %s, %v", name, number, got, err)
		}
		if got := CRISignal(number, 0); got == 0 {
			t.Errorf("%s: %d has no name when another one was not asked for", name, number)
		}
	}
	for image, want := range map[string]cri.Signal{"": cri.Signal_SIGNAL_SIGTERM, "SIGQUIT": cri.Signal_SIGNAL_SIGQUIT, "9": cri.Signal_SIGNAL_SIGKILL} {
		n, wrong, err := StopSignal(&cri.ContainerConfig{}, image)
		if got := CRISignal(n, 0); err != nil || wrong != nil || got != want {
			t.Errorf("of the image %q: %s, %v, %v", image, got, wrong, err)
		}
	}
	// An image that names none runs all the same, as with other runtimes; a client is told.
	for _, image := range []string{"BOGUS", "0", "65", "SIGRTMIN+99"} {
		n, wrong, err := StopSignal(&cri.ContainerConfig{}, image)
		if got := CRISignal(n, 0); err != nil || wrong == nil || got != cri.Signal_SIGNAL_SIGTERM {
			t.Errorf("of the image %q: %s, %v, %v", image, got, wrong, err)
		}
	}
	if _, _, err := StopSignal(&cri.ContainerConfig{StopSignal: 4711}, "SIGQUIT"); err == nil {
		t.Error("a client's signal that is none is taken")
	}
}

func FuzzParseSignal(f *testing.F) {
	for _, s := range []string{"", "TERM", "SIGRTMIN+3", "RTMAXMINUS2", "64"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if n, err := parseSignal(name); err == nil && (n < 1 || n > realTimeMax) {
			t.Errorf("%q is %d", name, n)
		}
	})
}
