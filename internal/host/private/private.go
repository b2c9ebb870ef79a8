// Package private makes the directories into which no other user of the host may look.
//
// What containers write has the modes that they give it, setuid root included, and lies in root file systems, writable layers and shared
// memory below our directories. So none of that may be reached by a path for anybody but root: a directory that is closed protects
// all that is below it, whatever its modes. Directories that an earlier version made wider are narrowed.
package private

import (
	"fmt"
	"os"
)

const (
	closed  os.FileMode = 0o700 // for root alone
	group   os.FileMode = 0o710 // one group passes, and sees no names
	passage os.FileMode = 0o711 // everybody passes, and sees no names
)

// Dir makes a directory for root alone, with those above it.
func Dir(path string) error { return narrow(path, closed) }

// Passage makes a directory that everybody may pass and nobody may list. It is for those above a directory of a Group; all else in it
// must be closed by itself.
func Passage(path string) error { return narrow(path, passage) }

// narrow gives a directory exactly the mode, whatever the umask and an earlier version have made of it.
func narrow(path string, mode os.FileMode) error {
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() == mode {
		return err
	}
	return os.Chmod(path, mode)
}

// Group lets one group, which is no other's, pass a directory that is there.
func Group(path string, gid uint32) error {
	// The owner first: with the mode first, the old group would pass.
	if err := os.Chown(path, 0, int(gid)); err != nil {
		return err
	}
	return os.Chmod(path, group)
}

// GroupReads lets one group, which is no other's, read a file that is there.
func GroupReads(path string, gid uint32) error {
	// The owner first, as of a directory.
	if err := os.Chown(path, 0, int(gid)); err != nil {
		return err
	}
	return os.Chmod(path, 0o640)
}

// Close narrows the directories in a directory, which an earlier version may have left open. What has a group of its own keeps that.
func Close(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		mode := info.Mode().Perm()
		if !info.IsDir() || mode == closed || mode == group {
			continue
		}
		if err := os.Chmod(path+"/"+e.Name(), closed); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("close to other users: %w", err)
		}
	}
	return nil
}
