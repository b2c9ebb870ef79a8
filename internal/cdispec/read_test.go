package cdispec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestReaderRemembersWhatDoesNotChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	write(t, path, withEdits("0.3.0", `"env": ["A=b"]`))
	var r Reader
	read := func() any {
		t.Helper()
		spec, err := r.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		return spec
	}
	if read() == read() {
		t.Error("a file that has just changed is remembered: a second change might look the same")
	}
	// A file's ctime cannot be set, only waited for.
	for deadline := time.Now().Add(time.Minute); read() != read(); {
		if time.Now().After(deadline) {
			t.Fatal("it is never remembered")
		}
	}
	known := read()
	write(t, path, withEdits("0.3.0", `"env": ["A=c"]`)) // as long as before
	if read() == known {
		t.Error("a change is not seen")
	}
	dir := filepath.Dir(path)
	if set := r.Load([]string{dir}); len(set.Files) != 1 {
		t.Errorf("faults %q", set.Faults)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if set := r.Load([]string{dir}); len(set.Files) != 0 || len(r.read) != 0 {
		t.Errorf("%d files, %d remembered", len(set.Files), len(r.read))
	}
}

func TestReaderIsNotHeldUp(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "pipe.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "grows.json"), withEdits("0.3.0", `"env": ["A=`+strings.Repeat("x", maxSpecSize)+`"]`))
	set := new(Reader).Load([]string{dir})
	if len(set.Faults) != 2 || !strings.Contains(set.Faults[0].Message, "more than the") || !strings.Contains(set.Faults[1].Message, "not a regular file") {
		t.Errorf("faults %q", set.Faults)
	}
}
