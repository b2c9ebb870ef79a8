//go:build plugins

package plugins

import (
	"os"
	"syscall"
	"testing"

	"monopod.dev/monopod/test/harness"
)

// startSample starts Kubernetes' sample-device-plugin. The devices that it gives are files at fixed places in the host's /tmp.
func startSample(t *testing.T, n *harness.Node, env ...string) *plugin {
	t.Helper()
	return start(t, n, env, binary(t, "MONOPOD_PLUGIN_SAMPLE"))
}

// sampleFiles removes what the plugin leaves when the test is over, and makes sure that it is nobody else's.
func sampleFiles(t *testing.T, more ...string) {
	t.Helper()
	for _, path := range append(more, "/tmp/Dev-1", "/tmp/Dev-2") {
		if _, err := os.Lstat(path); err == nil {
			t.Fatalf("%s exists already: it is of another run, or of the plugin's own; remove it", path)
		}
		t.Cleanup(func() { _ = os.RemoveAll(path) })
	}
}

const sampled = "example.com/resource"

// TestSample: devices that are mounts.
func TestSample(t *testing.T) {
	sampleFiles(t)
	n := startNode(t)
	tryOut(t, n, subject{resource: sampled, devices: 2, use: "echo x > $(ls -d /tmp/Dev-*)",
		start: func() *plugin { return startSample(t, n) }})
}

// TestSampleWithCDI: the plugin of a resource writes a CDI spec of the same name, and names its devices in what it answers. Its devices are
// blocks of memory (1:0, 1:1), which a host has that has loaded the driver, or whose administrator has made the nodes.
func TestSampleWithCDI(t *testing.T) {
	sampleFiles(t, "/tmp/CDI-Dev-1", "/tmp/CDI-Dev-2")
	for i, path := range []string{"/tmp/CDI-Dev-1", "/tmp/CDI-Dev-2"} {
		if err := syscall.Mknod(path, syscall.S_IFBLK|0o600, 1<<8|i); err != nil {
			t.Fatal(&os.PathError{Op: "mknod", Path: path, Err: err})
		}
	}
	n := startNode(t)
	tryOut(t, n, subject{resource: sampled, devices: 2, use: `echo $CDI_DEVICE && test -b "/tmp/$CDI_DEVICE" && test -f "/tmp/${CDI_DEVICE#CDI-}"`,
		start: func() *plugin { return startSample(t, n, "CDI_ENABLED=1") }})
}
