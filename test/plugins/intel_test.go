//go:build plugins

package plugins

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"monopod.dev/monopod/test/plugins/plugin"
)

// TestIntel: GPUs that containers share, preferred ones, links that are mounted, and a CDI spec that is written when they are allocated.
func TestIntel(t *testing.T) {
	plugin.Need(t, plugin.IntelProgram)
	n := startNode(t)
	s := plugin.Intel(t, place(n))
	tryOut(t, n, s)
	dri := place(n).GPUs() + "/dev/dri"
	// The plugin prefers the GPU that has a container already.
	if have := holdings(t, n, s.Resource)["a"]; !slices.Equal(have, []string{"card0-0"}) {
		t.Errorf("the pod has %q", have)
	}
	apply(n, "packed", s.Resource, 1, fmt.Sprintf(`test "$(cd %s; echo card*)" = card0`, dri))
	awaitUsed(t, n, "packed")

	// One device has the nodes of all GPUs.
	awaitResource(t, n, "gpu.intel.com/monitoring", 1, 1)
	apply(n, "monitor", "gpu.intel.com/monitoring", 1, fmt.Sprintf(`test "$(cd %s; echo card*)" = "card0 card1"`, dri))
	awaitUsed(t, n, "monitor")
	plugin.FakeGPU(t, place(n).GPUs(), 2)
	awaitResource(t, n, s.Resource, 6, 6)

	// The CDI specs that the plugin writes are its own: their devices are no resource beside it.
	if specs, _ := filepath.Glob(filepath.Join(place(n).CDI, "*")); len(specs) == 0 {
		t.Error("the plugin wrote no CDI spec")
	}
	for _, d := range devices(t, n) {
		if filepath.Dir(d.Source) != n.PluginDir() {
			t.Errorf("%+v is another source's", d)
		}
	}
}
