//go:build plugins

package plugins

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"monopod.dev/monopod/test/harness"
)

// subject is a plugin, as all of them are tried.
type subject struct {
	resource string
	devices  int // how many it tells of, at least two
	start    func() *plugin
	use      string // the shell command by which a pod uses one of them
}

// tryOut takes a plugin through what happens to all of them on a node: it comes, is killed and comes back, the node is killed and comes back, it
// goes. It returns with the plugin running, pod "a" with one device, and all others free.
func tryOut(t *testing.T, n *harness.Node, s subject) *plugin {
	t.Helper()
	p := s.start()
	awaitResource(t, n, s.resource, s.devices, s.devices)
	apply(n, "a", s.resource, 1, s.use)
	awaitUsed(t, n, "a")
	a := container(t, n, "a")

	// Without the plugin what runs keeps its device, and nothing is given.
	p.kill()
	awaitResource(t, n, s.resource, s.devices, 0)
	apply(n, "b", s.resource, s.devices-1, s.use)
	awaitHeld(t, n, "b", fmt.Sprintf("%s is not ready: %d wanted, 0 free (of %d, 1 in use, %d unfit)", s.resource, s.devices-1, s.devices, s.devices-1))
	p = s.start()
	awaitResource(t, n, s.resource, s.devices, s.devices)
	awaitUsed(t, n, "b")
	before, b := holdings(t, n, s.resource), container(t, n, "b")
	if len(before["a"]) != 1 || len(before["b"]) != s.devices-1 || slices.Contains(before["b"], before["a"][0]) {
		t.Errorf("the pods have %q", before)
	}

	// A plugin registers again with a node that has died, and nobody's device has become another's.
	n.Kill()
	n.Start()
	awaitResource(t, n, s.resource, s.devices, s.devices)
	apply(n, "c", s.resource, 1, s.use)
	awaitHeld(t, n, "c", fmt.Sprintf("1 wanted, 0 free (of %d, %d in use)", s.devices, s.devices))
	if after := holdings(t, n, s.resource); !maps.EqualFunc(before, after, slices.Equal) {
		t.Errorf("the pods had %q, and have %q", before, after)
	}
	if container(t, n, "a") != a || container(t, n, "b") != b {
		t.Error("a pod was touched")
	}
	n.Kubectl("delete", "pod", "b", "--timeout=60s")
	awaitUsed(t, n, "c")
	n.Kubectl("delete", "pod", "c", "--timeout=60s")

	// It goes as it is meant to, and comes again.
	p.stop()
	awaitResource(t, n, s.resource, s.devices, 0)
	p = s.start()
	awaitResource(t, n, s.resource, s.devices, s.devices)
	if container(t, n, "a") != a {
		t.Error("pod a was touched")
	}
	return p
}
