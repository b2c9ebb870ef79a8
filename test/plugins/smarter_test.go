//go:build plugins

package plugins

import (
	"slices"
	"testing"

	"monopod.dev/monopod/test/plugins/plugin"
)

// TestSmarter: a resource for each device node, and the API of 2020.
func TestSmarter(t *testing.T) {
	plugin.Need(t, plugin.SmarterProgram)
	n := startNode(t)
	tryOut(t, n, plugin.Smarter(t, place(n)))

	// A pod may have the same node more than once. The names of the devices are control characters, from NUL on: they are kept as they are.
	const tun = "smarter-devices/net_tun"
	awaitResource(t, n, tun, 2, 2)
	apply(n, "tun", tun, 2, "exec 3<>/dev/net/tun")
	awaitUsed(t, n, "tun")
	if have := holdings(t, n, tun)["tun"]; !slices.Equal(have, []string{"\x00", "\x01"}) {
		t.Errorf("the pod has %q", have)
	}
	status := getPod(t, n, "tun").Status.ContainerStatuses[0].AllocatedResourcesStatus
	if len(status) != 1 || len(status[0].Resources) != 2 || status[0].Resources[0].ResourceID != "\x00" {
		t.Errorf("the pod's status tells %+v", status)
	}
}
