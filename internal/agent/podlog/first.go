package podlog

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// First returns when a container has written its first line. dir is the folder of its logs; rotated ones count. The zero time: it has written nothing
// yet, or the log of its first run is not kept any more, or was compressed.
func First(dir string) (time.Time, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	const log = "0.log"
	var first time.Time
	for _, e := range entries {
		name := e.Name()
		if name != log && !strings.HasPrefix(name, log+".") {
			continue
		}
		if strings.HasSuffix(name, ".gz") {
			return time.Time{}, nil
		}
		at, err := begin(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a rotation may be under way
			return time.Time{}, err
		}
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first, nil
}

// begin is the time of a file's first record; zero: it has none.
func begin(path string) (time.Time, error) {
	f, err := open(path)
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close()
	head := make([]byte, maxHead)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return time.Time{}, err
	}
	return parse(head[:n]).time, nil
}
