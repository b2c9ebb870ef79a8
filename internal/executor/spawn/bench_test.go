//go:build cgo

package spawn

import (
	"context"
	"os"
	"testing"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// BenchmarkForms compares two forms of a start process, each up to its gate in this process's own namespaces: a copy of a zygote that is there
// already, and one that is executed anew for each start.
func BenchmarkForms(b *testing.B) {
	for name, anew := range map[string]bool{"copy of a zygote": false, "executed for each": true} {
		b.Run(name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			s, err := New(ctx, b.TempDir(), DefaultPatience)
			if err != nil {
				b.Fatal(err)
			}
			self, err := unix.PidfdOpen(os.Getpid(), 0)
			if err != nil {
				b.Fatal(err)
			}
			defer unix.Close(self)
			gate, keep, err := os.Pipe()
			if err != nil {
				b.Fatal(err)
			}
			defer gate.Close()
			defer keep.Close()
			kept, err := s.Keep(&configs.Config{})
			if err != nil {
				b.Fatal(err)
			}
			r := Exec{ID: "bench", Kept: kept, Process: &libcontainer.Process{Args: []string{"/bin/true"}, Cwd: "/", Env: []string{"PATH=/bin", "HOME=/"}},
				InitPID: os.Getpid(), InitFD: self, Gate: gate, Cgroups: map[string]string{}}
			for b.Loop() {
				child, err := s.Exec(ctx, r)
				if err != nil {
					b.Fatal(err)
				}
				s.abandon(&growth{status: child.Status, first: child.FD, pty: child.PTY})
				if anew {
					s.zygote.died()
				}
			}
		})
	}
}
