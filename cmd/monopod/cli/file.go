package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// WriteWhole lets f write a file, which has its name only when f has succeeded. What is no regular file is written to as it is.
func WriteWhole(path string, f func(io.Writer) error) (err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		out, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(f(out), out.Close())
	}
	out, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(out.Name()) // the first error is told
		}
	}()
	if err := f(out); err != nil {
		out.Close() // as above
		return err
	}
	// As if it had been written under its name.
	if err := errors.Join(out.Chmod(0o666&^umask()), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), path)
}

func umask() os.FileMode {
	m := unix.Umask(0o077)
	unix.Umask(m)
	return os.FileMode(m)
}
