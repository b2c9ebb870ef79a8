package podlog

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestRemoveFormer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c")
	if err := RemoveFormer(dir, 3); err != nil {
		t.Fatal("no folder:", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	kept := []string{"00.log", "0.logs", "1.txt", "10.log", "2.log", "2.log.20260101-000000.gz", "3.log", "log", "x.log"}
	for _, name := range append([]string{"0.log", "0.log.20260101-000000", "0.log.20260101-000001.gz", "1.log", "1.log.20260101-000000.tmp"}, kept...) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := RemoveFormer(dir, 2); err != nil {
			t.Fatal(err)
		}
		var names []string
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if slices.Sort(kept); !slices.Equal(names, kept) {
			t.Errorf("left: %q, want %q", names, kept)
		}
	}
}
