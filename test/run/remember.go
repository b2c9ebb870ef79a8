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

// remember adds names to the file of FLAKY tests and returns those that this run of CI had before. A line is the run's id, a time and a
// name, separated by tabs; the file is only added to, and tells over time which tests want mending.
func remember(path, id string, names []string) (before []string, err error) {
	if path == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(raw)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) == 3 && fields[0] == id {
			before = append(before, fields[2])
		}
	}
	if len(names) == 0 {
		return before, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	var lines strings.Builder
	for _, name := range names {
		fmt.Fprintf(&lines, "%s\t%s\t%s\n", id, time.Now().UTC().Format(time.RFC3339), name)
	}
	_, err = f.WriteString(lines.String()) // in one write, so that calls side by side do not mix their lines
	return before, errors.Join(err, f.Close())
}
