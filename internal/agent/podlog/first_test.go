package podlog

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

func TestFirst(t *testing.T) {
	const one, two = "2026-01-01T00:00:01.5Z stdout F one\n", "2026-01-01T00:00:02Z stderr P two"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"no folder", nil, ""},
		{"nothing yet", map[string]string{"0.log": ""}, ""},
		{"one line", map[string]string{"0.log": one}, "2026-01-01T00:00:01.5Z"},
		{"a line without an end", map[string]string{"0.log": two}, "2026-01-01T00:00:02Z"},
		{"a rotated log", map[string]string{"0.log": two, "0.log.20260101-000000": one}, "2026-01-01T00:00:01.5Z"},
		{"a compressed one", map[string]string{"0.log": two, "0.log.20260101-000000.gz": "?"}, ""},
		{"the first run's", map[string]string{"0.log": one, "1.log": two}, "2026-01-01T00:00:01.5Z"},
		{"the first run's is gone", map[string]string{"1.log": two, "10.log": two}, ""},
		{"what is no record", map[string]string{"0.log": "hello\n"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "c")
			for name, text := range c.files {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var want time.Time
			if c.want != "" {
				want = at(c.want)
			}
			if got, err := First(dir); err != nil || !got.Equal(want) {
				t.Errorf("%s, %v, want %q", got, err, c.want)
			}
		})
	}
}

// TestFirstFollowsNoLink: a container may have put it there.
func TestFirstFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(file(t, logLines), filepath.Join(dir, "0.log")); err != nil {
		t.Fatal(err)
	}
	if _, err := First(dir); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("%v", err)
	}
}
