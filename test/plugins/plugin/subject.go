// Package plugin starts device plugins as processes of the host, unmodified ones of others and the emulated one of examples/, and says how a pod uses
// what each gives. They are tried by test/plugins, with our node, and by test/kubelet, with an upstream kubelet.
//
// Most plugins register at one place that cannot be configured (/var/lib/kubelet/device-plugins). So each runs in a mount namespace in which
// the node's folder is there.
package plugin

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// The variables of the environment that name the programs of others; test/plugins/README.md says which ones they may be.
const (
	SampleProgram  = "MONOPOD_PLUGIN_SAMPLE"
	GenericProgram = "MONOPOD_PLUGIN_GENERIC"
	SmarterProgram = "MONOPOD_PLUGIN_SMARTER"
	IntelProgram   = "MONOPOD_PLUGIN_INTEL_GPU"
)

// Place is what a plugin has of a node.
type Place struct {
	Plugins string // the folder in which plugins register
	CDI     string // the folder of CDI specs, which plugins may write to
	Dir     string // a folder for what devices are made of
}

// Subject is a plugin, as all of them are tried.
type Subject struct {
	Resource string
	Devices  int // how many it tells of, at least two
	Start    func() *Process
	Use      string // the shell command by which a pod uses one of them
}

// Need is the path that a variable of the environment names. It skips the test where there is none.
func Need(t testing.TB, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("$%s names no plugin; test/plugins/README.md says which one it could be", variable)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("$%s: %v", variable, err)
	}
	return path
}

// Nodes makes character devices that are /dev/null under other names.
func Nodes(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, 1<<8|3); err != nil {
			t.Fatal(&os.PathError{Op: "mknod", Path: path, Err: err})
		}
	}
}
