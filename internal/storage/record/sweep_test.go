package record

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestWhatAKillLeaves: a directory without a record goes at the next start of who has the directory alone, unless it may be somebody else's.
func TestWhatAKillLeaves(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volumes")
	for path, isFile := range map[string]bool{
		"pvc-empty": false, "pvc-begun/.tmp-volume.json-123": true, "pvc-used/data": false, "pvc-hidden/.keep": true, "other": false,
	} {
		path = filepath.Join(dir, path)
		made := path
		if isFile {
			made = filepath.Dir(path)
		}
		if err := os.MkdirAll(made, 0o700); err != nil {
			t.Fatal(err)
		}
		if isFile {
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		alone bool
		want  []string
	}{{false, []string{"other", "pvc-begun", "pvc-empty", "pvc-hidden", "pvc-used"}}, {true, []string{"other", "pvc-hidden", "pvc-used"}}} {
		s, err := Open(dir, "n", c.alone, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			if e.Name()[0] != '.' {
				names = append(names, e.Name())
			}
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("alone=%v: there are %v, want %v", c.alone, names, c.want)
		}
	}
}
