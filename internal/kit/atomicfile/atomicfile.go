// Package atomicfile writes a file so that a reader, and a crash at any point, sees either the old content or the
// new one, never a part of either.
//
// It guarantees durability too: when Write returns nil the content and the directory entry have been synced.
// It does not lock: two writers of one path race, and one of them wins whole.
package atomicfile

import (
	"fmt"
	"os"
	"path/filepath"
)

// Write replaces the file at path by data, with the given permission bits (not reduced by the umask).
// The directory must exist. On error the old file is untouched and no temporary file is left.
func Write(path string, data []byte, perm os.FileMode) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, Temporary(path)+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()           // a second close is harmless; the first error is the one that counts
			os.Remove(tmp.Name()) // best effort: the rename did not happen, so nobody needs it
		}
	}()
	if err = tmp.Chmod(perm); err != nil {
		return err
	}
	if _, err = tmp.Write(data); err != nil {
		return err
	}
	if err = tmp.Sync(); err != nil {
		return err
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}

// Temporary is how the names of those files begin that a kill in the midst of Write of a path may leave beside it.
func Temporary(path string) string { return ".tmp-" + filepath.Base(path) + "-" }

// SyncDir makes the entries of a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}
