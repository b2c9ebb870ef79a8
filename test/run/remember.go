package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// remember adds names to the file of FLAKY tests and returns all those of this run of CI, of which a part may run beside this one. A line is the
// run's id, a time and a name, separated by tabs; the file is only added to, and tells over time which tests want mending.
func remember(path, id string, names []string) (all []string, err error) {
	if path == "" {
		return names, nil
	}
	// First written, then read: of two that run side by side, one at least sees both.
	if err := write(path, id, names); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(raw)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) == 3 && fields[0] == id {
			all = append(all, fields[2])
		}
	}
	return all, nil
}

func write(path, id string, names []string) error {
	var lines strings.Builder
	for _, name := range names {
		fmt.Fprintf(&lines, "%s\t%s\t%s\n", id, time.Now().UTC().Format(time.RFC3339), name)
	}
	return add(path, lines.String())
}

// add adds text to a file in one write, so that calls side by side do not mix their lines.
func add(path, text string) error {
	if text == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
