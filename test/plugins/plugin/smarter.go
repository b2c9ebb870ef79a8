package plugin

import (
	"os"
	"path/filepath"
	"testing"
)

// Smarter is smarter-project/smarter-device-manager, which has a resource for each device node, here /dev/fuse and, as smarter-devices/net_tun, two
// of /dev/net/tun. It speaks the API of 2020.
func Smarter(t testing.TB, w Place) Subject {
	t.Helper()
	config := filepath.Join(w.Dir, "smarter.yaml")
	if err := os.WriteFile(config, []byte("- devicematch: ^fuse$\n  nummaxdevices: 3\n- devicematch: ^net/tun$\n  nummaxdevices: 2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return Subject{Resource: "smarter-devices/fuse", Devices: 3, Use: "exec 3<>/dev/fuse",
		Start: func() *Process { return w.start(t, nil, Need(t, SmarterProgram), "-logtostderr", "-config", config) }}
}
