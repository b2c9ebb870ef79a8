package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"monopod.dev/monopod/test/contract"
)

// TestSource: CDI specs are a source of devices as all are. Each device has a node, which is a link to one that every host has.
func TestSource(t *testing.T) {
	contract.RunDeviceSource(t, func(t *testing.T) contract.DeviceSource {
		ignore := goleak.IgnoreCurrent()
		t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
		specs, nodes := t.TempDir(), t.TempDir()
		node := func(name string) string { return filepath.Join(nodes, name) }
		link := func(t *testing.T, name string) {
			t.Helper()
			if err := os.Symlink("/dev/zero", node(name)); err != nil && !errors.Is(err, fs.ErrExist) {
				t.Fatal(err)
			}
		}
		return contract.DeviceSource{
			Source:   New(Config{Dirs: []string{specs}, Log: slog.New(slog.DiscardHandler)}),
			Resource: "example.com/widget",
			Set: func(t *testing.T, names ...string) {
				t.Helper()
				var devices []string
				for _, name := range names {
					link(t, name)
					devices = append(devices, fmt.Sprintf(`{"name": %q, "containerEdits": {"deviceNodes": [{"path": "/dev/%s", "hostPath": %q}]}}`, name, name, node(name)))
				}
				raw := fmt.Sprintf(`{"cdiVersion": "0.6.0", "kind": "example.com/widget", "devices": [%s]}`, strings.Join(devices, ", "))
				hidden := filepath.Join(specs, ".widget") // a name that is no spec's, so that nobody reads a half
				write(t, hidden, raw)
				if err := os.Rename(hidden, filepath.Join(specs, "widget.json")); err != nil {
					t.Fatal(err)
				}
			},
			Break: func(t *testing.T, name string) {
				t.Helper()
				if err := os.Remove(node(name)); err != nil {
					t.Fatal(err)
				}
			},
			Mend: link,
		}
	})
}
