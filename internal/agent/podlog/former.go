package podlog

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// namesAtOnce is how many names of a folder are held at a time.
const namesAtOnce = 256

// RemoveFormer removes the logs of the runs of a container before that one, with what was rotated of them. dir is the folder of its logs; no folder is no error.
// It goes on after an error.
func RemoveFormer(dir string, before uint32) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	var errs []error
	for {
		names, err := d.Readdirnames(namesAtOnce)
		for _, name := range names {
			if attempt, ok := attemptOf(name); ok && attempt < before {
				if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
					errs = append(errs, err)
				}
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		}
	}
}

// attemptOf says whose log a file is, or was until it was rotated: N.log or N.log.TIME, which may be compressed.
func attemptOf(name string) (uint32, bool) {
	number, rest, _ := strings.Cut(name, ".")
	if rest != "log" && !strings.HasPrefix(rest, "log.") {
		return 0, false
	}
	n, err := strconv.ParseUint(number, 10, 32)
	return uint32(n), err == nil && strconv.FormatUint(n, 10) == number
}
