//go:build plugins

package plugins

import (
	"os"
	"path/filepath"
	"testing"

	"monopod.dev/monopod/internal/devices/report"
	"monopod.dev/monopod/test/plugins/plugin"
)

// TestGeneric: device nodes of a folder, as many as lie there.
func TestGeneric(t *testing.T) {
	plugin.Need(t, plugin.GenericProgram)
	n := startNode(t)
	dir := place(n).Plugged()
	s := plugin.GenericGlob(t, place(n))
	tryOut(t, n, s)

	// Each of its starts had a socket of another name; what the one that was killed has left is gone.
	if sockets, _ := filepath.Glob(n.PluginDir() + "/gdp-*"); len(sockets) != 1 {
		t.Errorf("the plugin has the sockets %q", sockets)
	}

	// Devices come and go; it looks every five seconds.
	plugin.Nodes(t, dir+"/dev-3", dir+"/dev-4")
	awaitResource(t, n, s.Resource, 5, 5)
	apply(n, "all", s.Resource, 4, "for d in /dev/plugged/*; do echo x > $d || exit 1; done")
	awaitUsed(t, n, "all")
	n.Kubectl("delete", "pod", "all", "--timeout=60s")
	for _, name := range []string{"dev-0", "dev-1", "dev-2", "dev-3"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	awaitResource(t, n, s.Resource, 1, 1)
	apply(n, "last", s.Resource, 1, "test \"$(ls /dev/plugged)\" = dev-4 && echo x > /dev/plugged/dev-4")
	awaitUsed(t, n, "last")
	for _, d := range devices(t, n) {
		if has := d.Holders[0].Pod; (has == "a") != (d.Health == report.Missing) || has == "last" && d.Health != report.Healthy {
			t.Errorf("pod %s has %+v", has, d)
		}
	}
}

// TestGenericCount: one node of the host is many devices, and a pod may have more than one of them.
func TestGenericCount(t *testing.T) {
	plugin.Need(t, plugin.GenericProgram)
	n := startNode(t)
	s := plugin.GenericCount(t, place(n))
	tryOut(t, n, s)
	awaitResource(t, n, "example.com/null", 1, 1)
	apply(n, "null", "example.com/null", 1, "echo x > /dev/null")
	awaitUsed(t, n, "null")
	apply(n, "two", s.Resource, 2, "exec 3<>/dev/fuse")
	awaitUsed(t, n, "two")
	n.Kubectl("delete", "pod", "two", "--timeout=60s")
	// Its container may make the device's node itself, as the permission m says.
	apply(n, "mknod", s.Resource, 1, "mknod /tmp/fuse c 10 229 && exec 3<>/tmp/fuse")
	awaitUsed(t, n, "mknod")
}
