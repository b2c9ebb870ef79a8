package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A data directory may have any name: with what separates overlayfs's options and layers in it, or longer than an option may be.
func TestCheckOverlayTakesAnyName(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"plain", "with:colon", "with,comma", `with\backslash`, strings.Repeat(strings.Repeat("l", 100)+"/", 4)} {
		dir := filepath.Join(dir, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := checkOverlay(dir); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
}
