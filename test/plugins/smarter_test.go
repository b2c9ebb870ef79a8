//go:build plugins

package plugins

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSmarter: smarter-project/smarter-device-manager, a resource for each device node, with an API of 2020. It has one place for sockets.
func TestSmarter(t *testing.T) {
	bin := binary(t, "MONOPOD_PLUGIN_SMARTER")
	n := startNode(t)
	config := filepath.Join(n.Dir, "smarter.yaml")
	if err := os.WriteFile(config, []byte("- devicematch: ^fuse$\n  nummaxdevices: 3\n- devicematch: ^kmsg$\n  nummaxdevices: 2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tryOut(t, n, subject{resource: "smarter-devices/fuse", devices: 3, use: "exec 3<>/dev/fuse",
		start: func() *plugin { return start(t, n, nil, bin, "-logtostderr", "-config", config) }})
	awaitResource(t, n, "smarter-devices/kmsg", 2, 2)
	apply(n, "kmsg", "smarter-devices/kmsg", 2, "exec 3</dev/kmsg")
	awaitUsed(t, n, "kmsg")
	t.Logf("%s", n.Monopod("device", "ls", "--admin-socket", filepath.Join(n.Dir, "run", "admin.sock")))
	t.Logf("%s", n.Kubectl("get", "pod", "kmsg", "-o", "jsonpath={.status.containerStatuses[0].allocatedResourcesStatus}"))
	t.Logf("%s", n.Monopod("status", "--admin-socket", filepath.Join(n.Dir, "run", "admin.sock")))
}
