package plugin

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"monopod.dev/monopod/test/harness"
)

// Plugged is the folder of GenericGlob's device nodes.
func (w Place) Plugged() string { return filepath.Join(w.Dir, "nodes") }

// GenericGlob is squat/generic-device-plugin with the device nodes of a folder, as many as lie there: dev-0, dev-1 and dev-2 at first.
func GenericGlob(t testing.TB, w Place) Subject {
	t.Helper()
	dir := w.Plugged()
	Nodes(t, dir+"/dev-0", dir+"/dev-1", dir+"/dev-2")
	describe := fmt.Sprintf(`{"name": "plugged", "groups": [{"paths": [{"path": "%s/dev-*", "mountPath": "/dev/plugged/"}]}]}`, dir)
	return Subject{Resource: "example.com/plugged", Devices: 3, Use: "echo x > $(ls -d /dev/plugged/* | head -n 1)",
		Start: func() *Process { return startGeneric(t, w, describe) }}
}

// GenericCount is the same plugin with /dev/fuse three times, and with /dev/null as example.com/null.
func GenericCount(t testing.TB, w Place) Subject {
	t.Helper()
	return Subject{Resource: "example.com/fuse", Devices: 3, Use: "exec 3<>/dev/fuse", Start: func() *Process {
		return startGeneric(t, w, `{"name": "fuse", "groups": [{"count": 3, "paths": [{"path": "/dev/fuse"}]}]}`, `{"name": "null", "groups": [{"paths": [{"path": "/dev/null"}]}]}`)
	}}
}

// startGeneric starts the plugin with devices as its flag describes them. Its socket is named by the second, and it does not get over one that a killed one
// has left.
func startGeneric(t testing.TB, w Place, devices ...string) *Process {
	t.Helper()
	command := []string{Need(t, GenericProgram), "--plugin-directory", w.Plugins, "--listen", "127.0.0.1:0", "--domain", "example.com"}
	for _, d := range devices {
		command = append(command, "--device", d)
	}
	harness.Eventually(t, "no socket has the name of this second", func() (bool, string) {
		left, _ := filepath.Glob(fmt.Sprintf("%s/gdp-*-%d.sock", w.Plugins, time.Now().Unix()))
		return len(left) == 0, fmt.Sprint(left)
	})
	return w.start(t, nil, command...)
}
