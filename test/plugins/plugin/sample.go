package plugin

import (
	"os"
	"syscall"
	"testing"
)

// Sample is Kubernetes' sample-device-plugin. Its devices are mounts of files at fixed places in the host's /tmp.
func Sample(t testing.TB, w Place) Subject {
	t.Helper()
	sampleFiles(t)
	return Subject{Resource: "example.com/resource", Devices: 2, Use: "echo x > $(ls -d /tmp/Dev-*)",
		Start: func() *Process { return w.start(t, nil, Need(t, SampleProgram)) }}
}

// SampleWithCDI is the same plugin, which now writes a CDI spec of its resource's name, and names its devices in what it answers. They are
// blocks of memory (1:0, 1:1), which a host has that has loaded the driver, or whose administrator has made the nodes.
func SampleWithCDI(t testing.TB, w Place) Subject {
	t.Helper()
	nodes := []string{"/tmp/CDI-Dev-1", "/tmp/CDI-Dev-2"}
	sampleFiles(t, nodes...)
	for i, path := range nodes {
		if err := syscall.Mknod(path, syscall.S_IFBLK|0o600, 1<<8|i); err != nil {
			t.Fatal(&os.PathError{Op: "mknod", Path: path, Err: err})
		}
	}
	return Subject{Resource: "example.com/resource", Devices: 2,
		Use:   `echo $CDI_DEVICE && test -b "/tmp/$CDI_DEVICE" && test -f "/tmp/${CDI_DEVICE#CDI-}"`,
		Start: func() *Process { return w.start(t, []string{"CDI_ENABLED=1"}, Need(t, SampleProgram)) }}
}

// sampleFiles removes what the plugin leaves when the test is over, and makes sure that it is nobody else's.
func sampleFiles(t testing.TB, more ...string) {
	t.Helper()
	for _, path := range append(more, "/tmp/Dev-1", "/tmp/Dev-2") {
		if _, err := os.Lstat(path); err == nil {
			t.Fatalf("%s exists already: it is of another run, or of the plugin's own; remove it", path)
		}
		t.Cleanup(func() { _ = os.RemoveAll(path) })
	}
}
