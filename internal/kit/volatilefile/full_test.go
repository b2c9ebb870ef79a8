package volatilefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/test/smallfs"
)

// TestKeptOnFullDisk: what is kept can be changed when nothing else can be written, however large it has become.
func TestKeptOnFullDisk(t *testing.T) {
	for _, kind := range smallfs.Kinds {
		for _, size := range []int{10, 500, 3000, 20 << 10} {
			t.Run(fmt.Sprint(kind, size), func(t *testing.T) {
				dir := t.TempDir()
				smallfs.Mount(t, kind, 8<<20, dir)
				kept, reserved, plain := filepath.Join(dir, "kept"), filepath.Join(dir, "reserved"), filepath.Join(dir, "plain")
				note := strings.Repeat("x", size)
				for i := range 12 { // the largest is written anew meanwhile
					if err := errors.Join(Keep(kept, doc{fmt.Sprint(i), note}), Write(plain, doc{fmt.Sprint(i), note})); err != nil {
						t.Fatal(err)
					}
				}
				if err := Reserve(reserved, 4000); err != nil {
					t.Fatal(err)
				}
				var got doc
				if err := Read(reserved, &got); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("into a file with room nothing was written: %+v, %v", got, err)
				}
				empty := smallfs.Fill(t, dir)
				if err := errors.Join(Reserve(reserved, 4000), Write(reserved, doc{"exit", strings.Repeat("y", 3900)})); err != nil {
					t.Errorf("into a file with room: %v", err)
				}
				for i := range spare {
					if err := Keep(kept, doc{fmt.Sprint("full", i), note}); err != nil {
						t.Errorf("change %d: %v", i, err)
					}
				}
				if err := Read(kept, &got); err != nil || got.Stage != fmt.Sprint("full", spare-1) || got.Note != note {
					t.Errorf("read %s, %v", got.Stage, err)
				}
				if err := Read(reserved, &got); err != nil || got.Stage != "exit" {
					t.Errorf("read %s, %v", got.Stage, err)
				}
				for what, write := range map[string]func(path string) error{
					"kept":     func(path string) error { return Keep(path, doc{"new", note}) },
					"reserved": func(path string) error { return Reserve(path, 4000) },
				} {
					path := filepath.Join(dir, "new")
					if err := write(path); !errors.Is(err, unix.ENOSPC) {
						t.Errorf("a new file that is %s, on a full disk: %v", what, err)
					}
					if _, err := os.Lstat(path); err == nil {
						t.Errorf("a new file that could not be %s is left", what)
					}
				}
				empty()
				for i := range 20 {
					if err := Keep(kept, doc{fmt.Sprint("room", i), note}); err != nil {
						t.Fatal(err)
					}
				}
				if st, err := os.Stat(kept); err != nil || st.Size() > 2*large {
					t.Errorf("it has grown to %d bytes, %v", st.Size(), err)
				}
			})
		}
	}
}

func BenchmarkWrites(b *testing.B) {
	for name, write := range map[string]func(string, any) error{"write": Write, "keep": Keep} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			note := strings.Repeat("x", 1200)
			for i := 0; b.Loop(); i++ {
				path := filepath.Join(dir, fmt.Sprint(i))
				for range 4 { // as many as a container has
					if err := write(path, doc{"stage", note}); err != nil {
						b.Fatal(err)
					}
				}
				if err := os.Remove(path); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
