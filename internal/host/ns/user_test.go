package ns

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

var mapped = Mappings{UIDs: []IDMap{{0, 300_000, 65536}}, GIDs: []IDMap{{0, 400_000, 65536}}}

// owner is the user namespace that a namespace belongs to, by its inode.
func owner(t *testing.T, path string) uint64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestUserNamespace(t *testing.T) {
	dir := filepath.Join(short(t), "ns")
	before := inode(t, "/proc/self/ns/user")
	err := Create(dir, Options{Network: true, IPC: true, UTS: true, User: &mapped, Hostname: "pod-two", Procfs: &Procfs{}, Sysctls: map[string]string{
		"kernel.shm_rmid_forced": "1",
		"kernel.msgmax":          "9000",
		"kernel.sem":             "250 32000 100 128",
		"kernel.domainname":      "example.test",
		"fs.mqueue.queues_max":   "7",
	}, Defaults: map[string]string{"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "0 2147483647"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		if pinned, err := Pinned(dir, k); err != nil || !pinned || inode(t, Path(dir, k)) == inode(t, "/proc/self/ns/"+string(k)) {
			t.Errorf("Pinned(%s) = %v, %v", k, pinned, err)
		}
	}
	if now := inode(t, "/proc/self/ns/user"); now != before || os.Getuid() != 0 {
		t.Errorf("this process changed: namespace %d instead of %d, user id %d", now, before, os.Getuid())
	}
	for _, k := range []Kind{Network, IPC, UTS} {
		if owner(t, Path(dir, k)) != inode(t, Path(dir, User)) {
			t.Errorf("the %s namespace does not belong to the user namespace", k)
		}
	}
	for _, want := range []struct {
		kind       Kind
		file, text string
	}{
		{UTS, "kernel/hostname", "pod-two"},
		{UTS, "kernel/domainname", "example.test"},
		{IPC, "kernel/shm_rmid_forced", "1"},
		{IPC, "kernel/msgmax", "9000"},
		{IPC, "kernel/sem", "250\t32000\t100\t128"},
		{IPC, "fs/mqueue/queues_max", "7"},
		{Network, "net/ipv4/ip_unprivileged_port_start", "0"},
		{Network, "net/ipv4/ping_group_range", "400000\t465535"}, // as the host sees it
	} {
		var got []byte
		err := Run(Path(dir, want.kind), want.kind, func() (err error) { got, err = os.ReadFile("/proc/sys/" + want.file); return err })
		if err != nil || string(bytes.TrimSpace(got)) != want.text {
			t.Errorf("%s holds %q (%v), want %q", want.file, got, err, want.text)
		}
	}
	for _, pid := range children(t) {
		t.Errorf("the child %s is left", pid)
	}
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
}

// children lists the living and the dead children of this process.
func children(t *testing.T) []string {
	t.Helper()
	var all []string
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range tasks {
		raw, _ := os.ReadFile(file) // the thread may have ended
		all = append(all, strings.Fields(string(raw))...)
	}
	return all
}

func TestGroupRange(t *testing.T) {
	m := []IDMap{{0, 400_000, 1000}, {1000, 900_000, 5}}
	for in, want := range map[string]string{
		"0 10": "400000 400010", "0 2147483647": "400000 400999", "1001 1002": "900001 900002", "1 0": "1 0",
		"2000 3000": "", "a b": "", "5": "", "-1 4": "",
	} {
		got, err := groupRange(in, m)
		if got != want || (err != nil) != (want == "") || err != nil && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestUserNamespaceOnly(t *testing.T) {
	dir := filepath.Join(short(t), "ns")
	if err := Create(dir, Options{User: &mapped}); err != nil {
		t.Fatal(err)
	}
	if pinned, err := Pinned(dir, User); err != nil || !pinned {
		t.Errorf("Pinned = %v, %v", pinned, err)
	}
}

func TestUserNamespaceRefused(t *testing.T) {
	dir := filepath.Join(short(t), "ns")
	no0 := Mappings{UIDs: []IDMap{{1, 300_000, 10}}, GIDs: mapped.GIDs}
	if err := Create(dir, Options{Network: true, User: &no0}); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "user id 0") {
		t.Errorf("id 0 is not mapped: %v", err)
	}
	overlap := Mappings{UIDs: []IDMap{{0, 300_000, 10}, {5, 400_000, 10}}, GIDs: mapped.GIDs}
	if err := Create(dir, Options{Network: true, User: &overlap}); err == nil {
		t.Error("mappings that overlap were taken")
	}
	if err := Create(dir, Options{Network: true, User: &mapped, Sysctls: map[string]string{"net.no_such": "1"}}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("unknown sysctl: %v", err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("left after errors: %v", err)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("children are left: %v", left)
	}
}

func TestHold(t *testing.T) {
	err := onThread(func() error {
		h, err := hold(unix.CLONE_NEWUTS, mapped)
		if err != nil {
			return err
		}
		defer h.end()
		for file, want := range map[string]string{"uid_map": "0 300000 65536", "gid_map": "0 400000 65536", "setgroups": "allow"} {
			raw, err := os.ReadFile(h.proc() + "/" + file)
			if got := strings.Join(strings.Fields(string(raw)), " "); err != nil || got != want {
				t.Errorf("%s: %q, %v; want %q", file, got, err, want)
			}
		}
		// It has not begun to run: the program would have made more threads.
		if tasks, err := os.ReadDir(h.proc() + "/task"); err != nil || len(tasks) != 1 {
			t.Errorf("%d threads, %v", len(tasks), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWithUser(t *testing.T) {
	var inside uint64
	err := WithUser(mapped, func(userns *os.File) error {
		var st unix.Stat_t
		err := unix.Fstat(int(userns.Fd()), &st)
		inside = st.Ino
		return err
	})
	if err != nil || inside == 0 || inside == inode(t, "/proc/self/ns/user") {
		t.Errorf("namespace %d, %v", inside, err)
	}
	if err := WithUser(mapped, func(*os.File) error { return syscall.EBADF }); err != syscall.EBADF {
		t.Errorf("f's error became %v", err)
	}
}

func BenchmarkUserNamespace(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "ns")
	for i := 0; b.Loop(); i++ {
		if err := Create(dir, Options{Network: true, IPC: true, UTS: true, User: &mapped, Hostname: fmt.Sprint("h", i)}); err != nil {
			b.Fatal(err)
		}
		if err := Remove(dir); err != nil {
			b.Fatal(err)
		}
	}
}
