//go:build plugins

package plugins

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestSmarter: smarter-project/smarter-device-manager has a resource for each device node, and speaks the API of 2020.
func TestSmarter(t *testing.T) {
	bin := binary(t, "MONOPOD_PLUGIN_SMARTER")
	n := startNode(t)
	config := filepath.Join(n.Dir, "smarter.yaml")
	if err := os.WriteFile(config, []byte("- devicematch: ^fuse$\n  nummaxdevices: 3\n- devicematch: ^net/tun$\n  nummaxdevices: 2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tryOut(t, n, subject{resource: "smarter-devices/fuse", devices: 3, use: "exec 3<>/dev/fuse",
		start: func() *plugin { return start(t, n, nil, bin, "-logtostderr", "-config", config) }})

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
