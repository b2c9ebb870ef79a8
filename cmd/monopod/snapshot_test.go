package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSnapshotCommands(t *testing.T) {
	dir := t.TempDir()
	dirs := []string{"--data-dir", filepath.Join(dir, "data"), "--run-dir", filepath.Join(dir, "run")}
	bad := filepath.Join(dir, "bad.tar")
	if err := os.WriteFile(bad, []byte("no snapshot"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"snapshot", "save"}, 2},
		{[]string{"snapshot", "restore", "a", "b"}, 2},
		{[]string{"snapshot", "save", "-o", "xml", bad}, 2},
		{append([]string{"snapshot", "save", filepath.Join(dir, "new.tar")}, dirs...), 1},
		{append([]string{"snapshot", "restore", bad}, dirs...), 1},
	} {
		if got := run(t.Context(), c.args); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.args, got, c.want)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "data")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	if _, err := os.Stat(filepath.Join(dir, "new.tar")); err == nil {
		t.Error("a file is there that nobody has saved")
	}
}
