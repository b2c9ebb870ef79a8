//go:build cgo

package spawn

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// forbidClone3 has all threads of this process, and what it starts, be answered that there is no clone3: as Docker's filters of some years did.
func forbidClone3(t *testing.T) {
	t.Helper()
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE3, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		t.Fatalf("load a filter: %v", errno)
	}
}

// Where clone3 is refused a process is born beside its cgroup, and joins it before anything else.
func TestClone3IsRefused(t *testing.T) {
	if dir := os.Getenv("SPAWN_WITHOUT_CLONE3"); dir != "" {
		forbidClone3(t)
		spawnInto(t, dir)
		return
	}
	base := "/sys/fs/cgroup/unified"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		base = "/sys/fs/cgroup"
	}
	dir := filepath.Join(base, fmt.Sprintf("mp-clone3-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatalf("a cgroup of version 2: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	cmd := exec.Command("/proc/self/exe", "-test.run", "^TestClone3IsRefused$", "-test.v")
	cmd.Env = append(os.Environ(), "SPAWN_WITHOUT_CLONE3="+dir)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "it is in its cgroup") {
		t.Errorf("%v\n%s", err, out)
	}
}

// spawnInto starts a process in this one's namespaces and in a cgroup of version 2, and looks whether it is there.
func spawnInto(t *testing.T, dir string) {
	s, err := New(t.Context(), t.TempDir(), DefaultPatience)
	if err != nil {
		t.Fatal(err)
	}
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(self)
	gate, keep, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	defer keep.Close()
	kept, err := s.Keep(&configs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	child, err := s.Exec(t.Context(), Exec{ID: "a", Kept: kept, Process: &libcontainer.Process{Args: []string{"/bin/true"}, Cwd: "/", Env: []string{"PATH=/bin"}},
		InitPID: os.Getpid(), InitFD: self, Gate: gate, Cgroups: map[string]string{"": dir}})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", child.FD.PID()))
	if err != nil || !strings.Contains(string(raw), "0::/"+filepath.Base(dir)+"\n") {
		t.Errorf("cgroups of the process: %q, %v, want %s", raw, err, dir)
	} else {
		t.Log("it is in its cgroup")
	}
	s.abandon(&growth{status: child.Status, first: child.FD, pty: child.PTY})
}
