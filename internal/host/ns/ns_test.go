package ns

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// inside runs f in the namespaces that dir holds.
func inside(t *testing.T, dir string, f func()) {
	t.Helper()
	err := onOwnThread(func() error {
		for k, flag := range cloneFlags {
			h, err := os.Open(Path(dir, k))
			if err != nil {
				return err
			}
			defer h.Close()
			if err := unix.Setns(int(h.Fd()), flag); err != nil {
				return err
			}
		}
		f()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCreateAndRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ns")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	err = Create(Config{Dir: dir, Kinds: []Kind{Net, IPC, UTS}, Hostname: "pod-a",
		Sysctls: map[string]string{"net/ipv4/ip_unprivileged_port_start": "7", "kernel/shm_rmid_forced": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Remove(dir) })
	for _, k := range []Kind{Net, IPC, UTS} {
		if ok, err := Pinned(Path(dir, k)); !ok || err != nil {
			t.Errorf("%s: pinned %v, %v", k, ok, err)
		}
	}
	inside(t, dir, func() {
		var uts unix.Utsname
		if err := unix.Uname(&uts); err != nil || unix.ByteSliceToString(uts.Nodename[:]) != "pod-a" {
			t.Errorf("host name inside: %q, %v", uts.Nodename, err)
		}
		for file, want := range map[string]string{"net/ipv4/ip_unprivileged_port_start": "7", "kernel/shm_rmid_forced": "1"} {
			if got, err := os.ReadFile("/proc/sys/" + file); err != nil || strings.TrimSpace(string(got)) != want {
				t.Errorf("%s inside: %q, %v", file, got, err)
			}
		}
	})
	if now, _ := os.Hostname(); now != host {
		t.Errorf("the host's name became %q", now)
	}
	for range 2 {
		if err := Remove(dir); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

func TestCreateFailsWhole(t *testing.T) {
	for name, cfg := range map[string]Config{
		"host name without namespace": {Kinds: []Kind{Net}, Hostname: "x"},
		"pid namespace":               {Kinds: []Kind{Net, "pid"}},
		"no such sysctl":              {Kinds: []Kind{Net}, Sysctls: map[string]string{"net/none": "1"}},
		"host name too long":          {Kinds: []Kind{UTS}, Hostname: strings.Repeat("x", 65)},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Dir = filepath.Join(t.TempDir(), "ns")
			if err := Create(cfg); err == nil {
				t.Fatal("it succeeded")
			}
			if _, err := os.Lstat(cfg.Dir); !os.IsNotExist(err) {
				t.Errorf("%s was left: %v", cfg.Dir, err)
			}
		})
	}
}

// The main thread cannot end; it must never be taken into a namespace.
func TestMainThreadStays(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 4 * runtime.GOMAXPROCS(0) {
		dir := filepath.Join(t.TempDir(), "ns")
		if err := Create(Config{Dir: dir, Kinds: []Kind{Net}}); err != nil {
			t.Fatal(err)
		}
		if err := Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if now, err := os.Readlink(task); err == nil && now != before {
			t.Errorf("%s is %s, the process began in %s", task, now, before)
		}
	}
}

func TestPinnedPlainFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net")
	if ok, err := Pinned(path); ok || err != nil {
		t.Errorf("no file: %v, %v", ok, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if ok, err := Pinned(path); ok || err != nil {
		t.Errorf("plain file: %v, %v", ok, err)
	}
}
