//go:build cgo

package spawn

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

func nativeArch(t *testing.T) libseccomp.ScmpArch {
	t.Helper()
	arch, err := libseccomp.GetNativeArch()
	if err != nil {
		t.Fatal(err)
	}
	return arch
}

func TestEnvironment(t *testing.T) {
	got, home, err := environment([]string{"A=1", "B=2", "A=3", "HOME=", "C=x=y"})
	if err != nil || !slices.Equal(got, []string{"B=2", "A=3", "C=x=y"}) || home {
		t.Errorf("%q, home %t, %v", got, home, err)
	}
	if got, home, err := environment([]string{"HOME=/h"}); err != nil || !slices.Equal(got, []string{"HOME=/h"}) || !home {
		t.Errorf("%q, home %t, %v", got, home, err)
	}
	for _, bad := range []string{"A", "=1", "A=\x00"} {
		if _, _, err := environment([]string{bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// What f does to its thread stays with it, on whichever thread it is called.
func TestOnThread(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/uts")
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := onThread(func() error { return unix.Unshare(unix.CLONE_NEWUTS) }); err != nil {
			t.Fatal(err)
		}
	}
	// A thread ends a moment after its work.
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		elsewhere := threadsElsewhere(t, before)
		if len(elsewhere) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("this process was in %s, its threads are in %v", before, elsewhere)
		}
	}
}

func threadsElsewhere(t *testing.T, uts string) (others []string) {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		if now, err := os.Readlink("/proc/self/task/" + thread.Name() + "/ns/uts"); err == nil && now != uts {
			others = append(others, now)
		}
	}
	return others
}

// The empty mount namespace is empty.
func TestEmptyNamespace(t *testing.T) {
	ns, err := newEmpty(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ns)
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil {
			return err
		}
		entries, err := os.ReadDir("/")
		if err != nil || len(entries) != 1 || entries[0].Name() != emptyRoom {
			t.Errorf("in it: %v, %v", entries, err)
		}
		if err := os.WriteFile("/x", nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("written to it: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
