package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRuncIsOfLibcontainersVersion(t *testing.T) {
	root := Root(t)
	if err := sameRunc(filepath.Join(root, "go.mod"), filepath.Join(root, "test", "runc", "go.mod")); err != nil {
		t.Error(err)
	}
	other := filepath.Join(t.TempDir(), "go.mod")
	for content, want := range map[string]string{
		"module x\n\nrequire github.com/opencontainers/runc v0.0.1 // indirect\n": "has runc v0.0.1",
		"module x\n\nrequire github.com/opencontainers/runc/x v0.0.1\n":           "does not require",
	} {
		if err := os.WriteFile(other, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := sameRunc(filepath.Join(root, "go.mod"), other); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
}
