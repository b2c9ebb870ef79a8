//go:build plugins

package plugins

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/plugins/plugin"
)

// tryOut takes a plugin through what happens to all of them on a node: it comes, is killed and comes back, the node is killed and comes back, it
// goes. It returns with the plugin running, pod "a" with one device, and all others free.
func tryOut(t *testing.T, n *harness.Node, s plugin.Subject) *plugin.Process {
	t.Helper()
	p := s.Start()
	awaitResource(t, n, s.Resource, s.Devices, s.Devices)
	apply(n, "a", s.Resource, 1, s.Use)
	awaitUsed(t, n, "a")
	a := container(t, n, "a")

	// Without the plugin what runs keeps its device, and nothing is given.
	p.Kill()
	awaitResource(t, n, s.Resource, s.Devices, 0)
	apply(n, "b", s.Resource, s.Devices-1, s.Use)
	awaitHeld(t, n, "b", fmt.Sprintf("%s is not ready: %d wanted, 0 free (of %d, 1 in use, %d unfit)", s.Resource, s.Devices-1, s.Devices, s.Devices-1))
	p = s.Start()
	awaitResource(t, n, s.Resource, s.Devices, s.Devices)
	awaitUsed(t, n, "b")
	before, b := holdings(t, n, s.Resource), container(t, n, "b")
	if len(before["a"]) != 1 || len(before["b"]) != s.Devices-1 || slices.Contains(before["b"], before["a"][0]) {
		t.Errorf("the pods have %q", before)
	}

	// A plugin registers again with a node that has died, and nobody's device has become another's.
	n.Kill()
	n.Start()
	awaitResource(t, n, s.Resource, s.Devices, s.Devices)
	apply(n, "c", s.Resource, 1, s.Use)
	awaitHeld(t, n, "c", fmt.Sprintf("1 wanted, 0 free (of %d, %d in use)", s.Devices, s.Devices))
	if after := holdings(t, n, s.Resource); !maps.EqualFunc(before, after, slices.Equal) {
		t.Errorf("the pods had %q, and have %q", before, after)
	}
	if container(t, n, "a") != a || container(t, n, "b") != b {
		t.Error("a pod was touched")
	}
	n.Kubectl("delete", "pod", "b", "--timeout=60s")
	awaitUsed(t, n, "c")
	n.Kubectl("delete", "pod", "c", "--timeout=60s")

	// It goes as it is meant to, and comes again.
	p.Stop()
	awaitResource(t, n, s.Resource, s.Devices, 0)
	p = s.Start()
	awaitResource(t, n, s.Resource, s.Devices, s.Devices)
	if container(t, n, "a") != a {
		t.Error("pod a was touched")
	}
	return p
}
