package volumes

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// sameDevice fails when there is a mount point below dir: a forgotten mount must not have its content deleted.
func sameDevice(dir string, _ os.FileInfo) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() || path == dir {
			return nil
		}
		mounted, err := isMountPoint(path)
		if err != nil {
			return err
		}
		if mounted {
			return fmt.Errorf("%s is still mounted: unmount it, then %s can be removed", path, dir)
		}
		return nil
	})
}
