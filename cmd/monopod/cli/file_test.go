package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	broken := errors.New("broken")
	write := func(text string, end error) error {
		return WriteWhole(path, func(w io.Writer) error {
			if _, err := w.Write([]byte(text)); err != nil {
				return err
			}
			return end
		})
	}
	if err := write("half", broken); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left: %v", entries)
	}
	if err := write("whole", nil); err != nil {
		t.Fatal(err)
	}
	if err := write("half", broken); err == nil {
		t.Error("no error")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "whole" {
		t.Errorf("%q, %v", got, err)
	}
	path = "/dev/null"
	if err := write("x", nil); err != nil {
		t.Error(err)
	}
}
