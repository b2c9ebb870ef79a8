package stats

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What is written is told as a sum, and by the name of the other file system only when it is the same one.
func TestWritten(t *testing.T) {
	dir := t.TempDir()
	c := New(Config{LayerDir: dir, Log: slog.New(slog.DiscardHandler)})
	layers := map[string]string{}
	for _, id := range []string{"a", "b"} {
		layers[id] = filepath.Join(dir, id)
		if err := os.Mkdir(layers[id], 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(layers[id], "file"), make([]byte, 1<<20), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if u := c.Written(maps.All(layers), "/proc"); u.GetUsedBytes().GetValue() != 0 || u.GetFsId().GetMountpoint() != dir {
		t.Errorf("before anything is measured, beside another file system: %v", u)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		c.Run(ctx) // it ends with ctx
		close(ended)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	beside := t.TempDir()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		u := c.Written(maps.All(layers), beside)
		if u.GetFsId().GetMountpoint() != beside || u.GetTimestamp() == 0 {
			t.Fatalf("%v", u)
		}
		if u.GetUsedBytes().GetValue() >= 2<<20 && u.GetInodesUsed().GetValue() == 4 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("two files in two directories: %v", u)
		}
	}
}
