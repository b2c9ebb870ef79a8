//go:build kubelet

package kubelet

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/plugins/plugin"
)

// TestPlugins: the plugins of test/plugins, under an upstream kubelet. What differs from our node is in docs/DEVICES.md.
func TestPlugins(t *testing.T) {
	for _, c := range []struct {
		name, program string // the variable that names it
		subject       func(testing.TB, plugin.Place) plugin.Subject
	}{
		{"Emulated", "", plugin.Emulated},
		{"Sample", plugin.SampleProgram, plugin.Sample},
		{"SampleWithCDI", plugin.SampleProgram, plugin.SampleWithCDI},
		{"Generic", plugin.GenericProgram, plugin.GenericGlob},
		{"GenericCount", plugin.GenericProgram, plugin.GenericCount},
		{"Smarter", plugin.SmarterProgram, plugin.Smarter},
		{"Intel", plugin.IntelProgram, plugin.Intel},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.program != "" {
				plugin.Need(t, c.program)
			}
			n := startForPlugins(t)
			tryOut(n, c.subject(t, n.place()))
		})
	}
}

// tryOut takes a plugin through what happens to all of them on a node: it comes, is killed and comes back, the kubelet is killed and comes back, the
// plugin goes, and comes again.
func tryOut(n *node, s plugin.Subject) {
	n.Helper()
	p := s.Start()
	n.awaitDevices(s.Resource, s.Devices)
	n.apply("a", s.Resource, 1, s.Use)
	a := n.awaitUsed("a")

	// Without the plugin what runs keeps its device. A pod that asks for one is rejected, and stays so.
	p.Kill()
	n.awaitDevices(s.Resource, 0)
	n.apply("early", s.Resource, s.Devices-1, s.Use)
	early := "no healthy devices present; cannot allocate unhealthy devices " + s.Resource
	n.awaitRejected("early", early)
	p = s.Start()
	n.awaitDevices(s.Resource, s.Devices)
	n.apply("b", s.Resource, s.Devices-1, s.Use)
	b := n.awaitUsed("b")
	n.awaitRejected("early", early)
	before := n.holdings(s.Resource)
	if len(before["a"]) != 1 || len(before["b"]) != s.Devices-1 || slices.Contains(before["b"], before["a"][0]) {
		n.Errorf("the pods have %q", before)
	}
	// So is a pod for which there are too few.
	n.apply("many", s.Resource, 1, s.Use)
	n.awaitRejected("many", fmt.Sprintf("requested number of devices unavailable for %s. Requested: 1, Available: 0", s.Resource))
	n.clear("early", "many")

	// A plugin registers again with a kubelet that has died, and nobody's device has become another's.
	n.stopKubelet(syscall.SIGKILL)
	began := time.Now()
	n.startKubelet()
	n.awaitDevices(s.Resource, s.Devices)
	n.Logf("%s is registered again %.1f s after the kubelet was started", s.Resource, time.Since(began).Seconds())
	if got := n.runs("a"); got != a {
		n.Errorf("pod a was container %s, and is %s", a, got)
	}
	if got := n.runs("b"); got != b {
		n.Errorf("pod b was container %s, and is %s", b, got)
	}
	if after := n.holdings(s.Resource); !maps.EqualFunc(before, after, slices.Equal) {
		n.Errorf("the pods had %q, and have %q", before, after)
	}
	n.clear("b")
	n.apply("c", s.Resource, 1, s.Use)
	n.awaitUsed("c")

	// It goes as it is meant to, and comes again.
	p.Stop()
	n.awaitDevices(s.Resource, 0)
	s.Start()
	n.awaitDevices(s.Resource, s.Devices)
	if got := n.runs("a"); got != a {
		n.Errorf("pod a was container %s, and is %s", a, got)
	}
	n.clear("a", "c")
}

// TestIntelAfterRestart: Intel's plugin does not see that the kubelet's stream of devices has ended with the kubelet, and panics when it sends the next change
// into that, as with our node (docs/DEVICES.md). Somebody has to start it again.
func TestIntelAfterRestart(t *testing.T) {
	plugin.Need(t, plugin.IntelProgram)
	n := startForPlugins(t)
	s := plugin.Intel(t, n.place())
	p := s.Start()
	n.awaitDevices(s.Resource, s.Devices)
	n.apply("a", s.Resource, 1, s.Use)
	a := n.awaitUsed("a")
	n.stopKubelet(syscall.SIGKILL)
	n.startKubelet()
	n.awaitDevices(s.Resource, s.Devices)
	harness.Eventually(n, "the plugin ends by itself", func() (bool, string) { return p.Ends() > 0, fmt.Sprint(p.Ends()) })
	n.awaitDevices(s.Resource, s.Devices)
	if got := n.runs("a"); got != a {
		t.Errorf("pod a was container %s, and is %s", a, got)
	}
	n.clear("a")
}
