package plugin

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"monopod.dev/monopod/test/harness"
)

// Emulated is the plugin of examples/deviceplugin, built from this repository, with three device nodes. It has both of the optional calls.
func Emulated(t testing.TB, w Place) Subject {
	t.Helper()
	program := filepath.Join(t.TempDir(), "deviceplugin")
	build := exec.Command("go", "build", "-o", program, "./examples/deviceplugin")
	build.Dir = harness.Root(t)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the emulated plugin: %v\n%s", err, out)
	}
	dir := filepath.Join(w.Dir, "emulated")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return Subject{Resource: "example.com/emulated", Devices: 3, Use: "echo x > $(ls -d /dev/emulated-* | head -n 1)",
		Start: func() *Process {
			return w.start(t, nil, program, "--devices", "3", "--device-path", dir+"/%s", "--make-nodes", "--preferred", "--pre-start")
		}}
}
