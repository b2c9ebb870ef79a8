//go:build plugins

package plugins

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"monopod.dev/monopod/internal/devices/report"
	"monopod.dev/monopod/test/harness"
)

// startGeneric starts squat/generic-device-plugin with devices as its flag describes them. Its socket is named by the second, and it does not get over one
// that a killed one has left.
func startGeneric(t *testing.T, n *harness.Node, devices ...string) *plugin {
	t.Helper()
	command := []string{binary(t, "MONOPOD_PLUGIN_GENERIC"), "--plugin-directory", n.PluginDir(), "--listen", "127.0.0.1:0", "--domain", "example.com"}
	for _, d := range devices {
		command = append(command, "--device", d)
	}
	harness.Eventually(t, "no socket has the name of this second", func() (bool, string) {
		left, _ := filepath.Glob(fmt.Sprintf("%s/gdp-*-%d.sock", n.PluginDir(), time.Now().Unix()))
		return len(left) == 0, fmt.Sprint(left)
	})
	return start(t, n, nil, command...)
}

// TestGeneric: device nodes of a folder, as many as lie there.
func TestGeneric(t *testing.T) {
	binary(t, "MONOPOD_PLUGIN_GENERIC")
	n := startNode(t)
	dir := filepath.Join(n.Dir, "nodes")
	devNodes(t, dir+"/dev-0", dir+"/dev-1", dir+"/dev-2")
	const resource = "example.com/plugged"
	describe := fmt.Sprintf(`{"name": "plugged", "groups": [{"paths": [{"path": "%s/dev-*", "mountPath": "/dev/plugged/"}]}]}`, dir)
	tryOut(t, n, subject{resource: resource, devices: 3, use: "echo x > $(ls -d /dev/plugged/* | head -n 1)",
		start: func() *plugin { return startGeneric(t, n, describe) }})

	// Each of its starts had a socket of another name; what the one that was killed has left is gone.
	if sockets, _ := filepath.Glob(n.PluginDir() + "/gdp-*"); len(sockets) != 1 {
		t.Errorf("the plugin has the sockets %q", sockets)
	}

	// Devices come and go; it looks every five seconds.
	devNodes(t, dir+"/dev-3", dir+"/dev-4")
	awaitResource(t, n, resource, 5, 5)
	apply(n, "all", resource, 4, "for d in /dev/plugged/*; do echo x > $d || exit 1; done")
	awaitUsed(t, n, "all")
	n.Kubectl("delete", "pod", "all", "--timeout=60s")
	for _, name := range []string{"dev-0", "dev-1", "dev-2", "dev-3"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	awaitResource(t, n, resource, 1, 1)
	apply(n, "last", resource, 1, "test \"$(ls /dev/plugged)\" = dev-4 && echo x > /dev/plugged/dev-4")
	awaitUsed(t, n, "last")
	for _, d := range devices(t, n) {
		if has := d.Holders[0].Pod; (has == "a") != (d.Health == report.Missing) || has == "last" && d.Health != report.Healthy {
			t.Errorf("pod %s has %+v", has, d)
		}
	}
}

// TestGenericCount: one node of the host is many devices, and a pod may have more than one of them.
func TestGenericCount(t *testing.T) {
	binary(t, "MONOPOD_PLUGIN_GENERIC")
	n := startNode(t)
	const resource = "example.com/fuse"
	tryOut(t, n, subject{resource: resource, devices: 3, use: "exec 3<>/dev/fuse",
		start: func() *plugin {
			return startGeneric(t, n, `{"name": "fuse", "groups": [{"count": 3, "paths": [{"path": "/dev/fuse"}]}]}`, `{"name": "null", "groups": [{"paths": [{"path": "/dev/null"}]}]}`)
		}})
	awaitResource(t, n, "example.com/null", 1, 1)
	apply(n, "null", "example.com/null", 1, "echo x > /dev/null")
	awaitUsed(t, n, "null")
	apply(n, "two", resource, 2, "exec 3<>/dev/fuse")
	awaitUsed(t, n, "two")
	n.Kubectl("delete", "pod", "two", "--timeout=60s")
	// Its container may make the device's node itself, as the permission m says.
	apply(n, "mknod", resource, 1, "mknod /tmp/fuse c 10 229 && exec 3<>/tmp/fuse")
	awaitUsed(t, n, "mknod")
}
