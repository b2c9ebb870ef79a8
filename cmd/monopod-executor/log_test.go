//go:build cgo

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	testLimit = 4 << 10
	testLines = 400
)

// As a child this test is a process that writes many lines.
func TestOwnLogWriter(t *testing.T) {
	name := os.Getenv("OWN_LOG_WRITER")
	if name == "" {
		return // it is for the children of the tests below
	}
	l := &ownLog{limit: testLimit}
	for i := range testLines {
		if _, err := fmt.Fprintf(l, "%s %04d\n", name, i); err != nil {
			t.Fatal(err)
		}
	}
}

// Two processes write to one log: it stays within its bounds, no line is torn, and the newest lines of both are there.
func TestOwnLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var cmds []*exec.Cmd
	for _, name := range []string{"keeper", "worker"} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestOwnLogWriter$")
		cmd.Env = append(os.Environ(), "OWN_LOG_WRITER="+name)
		cmd.Stderr = f
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	var all []string
	for _, name := range []string{path + oldSuffix, path} {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// A process may have asked for the size just before the other one wrote.
		if len(raw) > testLimit+100 || !bytes.HasSuffix(raw, []byte("\n")) {
			t.Errorf("%s has %d bytes, the limit is %d; it ends in %q", name, len(raw), testLimit, raw[max(0, len(raw)-10):])
		}
		all = append(all, strings.Split(strings.TrimSpace(string(raw)), "\n")...)
	}
	if last := fmt.Sprintf("%04d", testLines-1); !slices.Contains(all, "keeper "+last) && !slices.Contains(all, "worker "+last) {
		t.Errorf("neither process's last line is there: %q", all[max(0, len(all)-5):])
	}
	if files, _ := filepath.Glob(path + "*"); len(files) != 2 {
		t.Errorf("files %q, want two", files)
	}
}

// What is no file is left alone.
func TestOwnLogToPipe(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestOwnLogWriter$")
	cmd.Env = append(os.Environ(), "OWN_LOG_WRITER=x")
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != testLines {
		t.Errorf("%d lines, want %d", n, testLines)
	}
}
