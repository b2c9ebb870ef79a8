package harness

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Outsider is the user and the group of somebody who has nothing to do with the node.
const Outsider = 65534

// outsiderEnv makes a test's program the outsider.
const outsiderEnv = "MONOPOD_TEST_OUTSIDER"

// ServeOutsider does the outsider's part, and ends the process, where this is the outsider's. A TestMain calls it first.
func ServeOutsider() {
	if os.Getenv(outsiderEnv) == "" {
		return
	}
	var paths []string
	if err := json.NewDecoder(os.Stdin).Decode(&paths); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	reached := map[string]string{}
	for _, path := range paths {
		if how := reach(path); how != "" {
			reached[path] = how
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(reached); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// reach tells in words what this process may do with a path: nothing is the empty string. (To connect to a socket is to write to it.)
func reach(path string) string {
	var how []string
	for _, c := range []struct {
		mode uint32
		word string
	}{{unix.R_OK, "read"}, {unix.W_OK, "write"}, {unix.X_OK, "pass or execute"}} {
		if unix.Faccessat(unix.AT_FDCWD, path, c.mode, 0) == nil {
			how = append(how, c.word)
		}
	}
	if _, err := os.Readlink(path); err == nil {
		how = append(how, "read the link")
	}
	return strings.Join(how, ", ")
}

// AsOutsider makes a command that runs as the outsider, without groups.
func AsOutsider(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: Outsider, Gid: Outsider}}
	return cmd
}

// ReachedByOutsider walks the directories with all that is mounted in them, and returns what of it the outsider can list, read, write, pass,
// execute or connect to, and the number of paths that were tried.
func ReachedByOutsider(t testing.TB, dirs ...string) (reached map[string]string, tried int) {
	t.Helper()
	var paths []string
	for _, dir := range dirs {
		if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil && !os.IsNotExist(err) { // a node that runs makes and removes files
				return err
			}
			paths = append(paths, path)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(paths)
	raw, err := json.Marshal(paths)
	if err != nil {
		t.Fatal(err)
	}
	cmd := AsOutsider("/proc/self/exe") // by its path the outsider may not reach it
	cmd.Env = append(os.Environ(), outsiderEnv+"=1")
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(raw)), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the outsider: %v", err)
	}
	if err := json.Unmarshal(out, &reached); err != nil {
		t.Fatal(err)
	}
	return reached, len(paths)
}
