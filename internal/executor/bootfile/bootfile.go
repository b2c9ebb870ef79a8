// Package bootfile writes small JSON files that mean nothing after a restart of the machine.
//
// A reader, and a process killed at any point, sees the old content or the new one, never a part. Nothing is synced
// to the disk: what the kernel has taken survives the death of any process, and these files tell of processes, which do
// not survive the kernel either. (Each carries the boot id, so that a file of an earlier boot is known for what it is.)
package bootfile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Write replaces the file at path by v as JSON, with mode 0600. The directory must exist.
func Write(path string, v any) (err error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	if _, err = tmp.Write(raw); err != nil {
		return err
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// Read decodes the file at path into v.
func Read(path string, v any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
