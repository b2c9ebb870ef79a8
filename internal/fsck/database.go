package fsck

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// ViewDatabase proves that a bbolt file is whole, page by page, and calls view with a transaction of it. The file is not
// changed. Errors: NotFound (there is none, or an empty one), Unavailable (another process has it open), DataLoss (it is damaged; view has not been
// called), and those of view.
func ViewDatabase(path string, view func(*bolt.Tx) error) error {
	// A process that was killed when it made the file has left an empty one, which the next one begins with as if it were not there.
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		return fmt.Errorf("%s is empty: %w", path, errdefs.ErrNotFound)
	}
	db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s: %w", path, errdefs.ErrNotFound)
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%s is in use by another process; stop the node that works with this data directory: %w", path, errdefs.ErrUnavailable)
	case errors.Is(err, os.ErrPermission):
		return err
	case err != nil:
		return fmt.Errorf("%s cannot be opened: %w: %w", path, err, errdefs.ErrDataLoss)
	}
	defer db.Close() // nothing was written
	if err := verify(path); err != nil {
		return err
	}
	if view == nil {
		return nil
	}
	return db.View(view)
}

// verify looks at every page of the file, which bbolt keeps others from changing meanwhile.
func verify(path string) error {
	file, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := checkPages(file); err != nil {
		return fmt.Errorf("%s: %w: %w", path, err, errdefs.ErrDataLoss)
	}
	return nil
}
