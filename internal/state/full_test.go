package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/test/smallfs"
)

// TestFullDisk: with a full disk what is stored can be changed and removed, after a restart too, and nothing new should begin.
func TestFullDisk(t *testing.T) {
	for _, kind := range smallfs.Kinds {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			smallfs.Mount(t, kind, 32<<20, dir)
			open := func() (*DB, Table[string]) {
				t.Helper()
				db, _, err := Open(Config{Path: filepath.Join(dir, "state.db")})
				if err != nil {
					t.Fatal(err)
				}
				return db, NewTable[string](db, "t")
			}
			db, table := open()
			const records = 300
			long := strings.Repeat("x", 10<<10) // all of them take more than a step
			for i := range records {
				if err := errors.Join(db.Room(), table.Put(fmt.Sprint(i), long)); err != nil {
					t.Fatal(err)
				}
			}
			empty := smallfs.Fill(t, dir)
			for i := range records {
				key := fmt.Sprint(i)
				if err := table.Put(key, strings.Repeat("y", 10<<10)); err != nil {
					t.Fatalf("change %d on a full disk: %v", i, err)
				}
				if i%100 == 50 {
					if err := db.Close(); err != nil {
						t.Fatal(err)
					}
					db, table = open()
				}
				if i%2 == 0 {
					if err := table.Delete(key); err != nil {
						t.Fatalf("removal %d on a full disk: %v", i, err)
					}
				}
			}
			if recs, err := table.List(); err != nil || len(recs) != records/2 {
				t.Errorf("%d records, %v", len(recs), err)
			}
			if err := db.Room(); !errdefs.IsResourceExhausted(err) || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), dir) {
				t.Errorf("a full disk: %v", err)
			}
			for i := range records {
				if err := errors.Join(table.Put(fmt.Sprint(i), long), table.Delete(fmt.Sprint(i))); err != nil {
					t.Fatalf("removal %d after the disk was said to be full: %v", i, err)
				}
			}
			empty()
			if err := errors.Join(db.Room(), table.Put("more", long), db.Close()); err != nil {
				t.Errorf("with room again: %v", err)
			}
		})
	}
}

// TestRoomOfAFileThatIsGone: a disk that is not mounted any more is not a full one.
func TestRoomOfAFileThatIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db, _ := openAt(t, Config{Path: path})
	if err := errors.Join(db.Room(), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	if err := db.Room(); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), path+" is gone") {
		t.Errorf("%v", err)
	}
}
