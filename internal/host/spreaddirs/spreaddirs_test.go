package spreaddirs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"monopod.dev/monopod/test/smallfs"
)

// On ext4 directories come to lie far from each other, and elsewhere nothing is done.
func TestDirectories(t *testing.T) {
	for _, kind := range smallfs.Kinds {
		t.Run(kind, func(t *testing.T) {
			disk := t.TempDir()
			smallfs.Mount(t, kind, 16<<30, disk)
			marked := filepath.Join(disk, "marked")
			if err := os.Mkdir(marked, 0o700); err != nil {
				t.Fatal(err)
			}
			for range 2 { // it is done at every start
				if err := Directories(marked); err != nil {
					t.Fatal(err)
				}
			}
			if kind != "ext4" {
				return
			}
			var inodes []uint64
			for i := range 16 {
				dir := filepath.Join(marked, fmt.Sprint(i))
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				inodes = append(inodes, inode(t, dir))
			}
			slices.Sort(inodes)
			// A group of blocks has some 8,000 inodes, and sixteen groups are neighbours.
			if far := inodes[len(inodes)-1] - inodes[0]; far < 100_000 {
				t.Errorf("the directories have the inodes %v", inodes)
			}
		})
	}
}

func TestDirectoryIsMissing(t *testing.T) {
	if err := Directories(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a directory that is not there: %v", err)
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}
