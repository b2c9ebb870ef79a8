package etcd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockData makes sure that no other process uses the data directory: etcd itself would wait for it without a word. The
// lock ends with the process, however that ends. The file stays.
func lockData(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock etcd's data: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("etcd's data in %s is used by another process: stop that one or choose another data directory", dir)
		}
		return nil, fmt.Errorf("lock etcd's data in %s: %w", dir, err)
	}
	return f, nil
}
