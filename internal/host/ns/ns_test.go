package ns

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestCreateAndRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ns")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Network: true, IPC: true, UTS: true, Hostname: "pod-a",
		Sysctls: map[string]string{"net.ipv4.ip_unprivileged_port_start": "7", "kernel/shm_rmid_forced": "1"}}
	if err := Create(dir, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Remove(dir) })
	for _, k := range kinds {
		if ok, err := Pinned(dir, k); !ok || err != nil {
			t.Errorf("%s: pinned %v, %v", k, ok, err)
		}
	}
	inside := func(k Kind, f func()) {
		if err := Run(Path(dir, k), k, func() error { f(); return nil }); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
	sysctl := func(file, want string) {
		if got, err := os.ReadFile("/proc/sys/" + file); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s inside: %q, %v", file, got, err)
		}
	}
	inside(UTS, func() {
		var uts unix.Utsname
		if err := unix.Uname(&uts); err != nil || unix.ByteSliceToString(uts.Nodename[:]) != "pod-a" {
			t.Errorf("host name inside: %q, %v", uts.Nodename, err)
		}
	})
	inside(Network, func() { sysctl("net/ipv4/ip_unprivileged_port_start", "7") })
	inside(IPC, func() { sysctl("kernel/shm_rmid_forced", "1") })
	if now, _ := os.Hostname(); now != host {
		t.Errorf("the host's name became %q", now)
	}
	if err := Create(dir, o); !errdefs.IsAlreadyExists(err) {
		t.Errorf("a second Create: %v, want AlreadyExists", err)
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
	for name, o := range map[string]Options{
		"host name without namespace": {Network: true, Hostname: "x"},
		"host name too long":          {UTS: true, Hostname: strings.Repeat("x", 65)},
		"no such sysctl":              {Network: true, Sysctls: map[string]string{"net.none": "1"}},
		"the host's sysctl":           {Network: true, Sysctls: map[string]string{"kernel.shm_rmid_forced": "1"}},
		"a sysctl of no namespace":    {Network: true, IPC: true, UTS: true, Sysctls: map[string]string{"vm.swappiness": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ns")
			if err := Create(dir, o); err == nil {
				t.Fatal("it succeeded")
			}
			if _, err := os.Lstat(dir); !os.IsNotExist(err) {
				t.Errorf("%s was left: %v", dir, err)
			}
		})
	}
}

// No thread of the process, above all not the first, may be left in a new namespace.
func TestThreadsStayOutside(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 4 * runtime.GOMAXPROCS(0) {
		dir := filepath.Join(t.TempDir(), "ns")
		if err := Create(dir, Options{Network: true}); err != nil {
			t.Fatal(err)
		}
		if err := Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := os.Readlink("/proc/self/ns/net"); err != nil || now != before {
		t.Errorf("the process is in %s (%v), it began in %s", now, err, before)
	}
}

func TestPinnedPlainFile(t *testing.T) {
	dir := t.TempDir()
	if ok, err := Pinned(dir, Network); ok || err != nil {
		t.Errorf("no file: %v, %v", ok, err)
	}
	if err := os.WriteFile(Path(dir, Network), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if ok, err := Pinned(dir, Network); ok || err != nil {
		t.Errorf("plain file: %v, %v", ok, err)
	}
}
