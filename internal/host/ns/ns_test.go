package ns

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/mount"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// short makes a directory that is gone, mounts and all, after the test.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mpns")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Remove(filepath.Join(dir, "ns")); err != nil {
			t.Error(err)
		}
		if mounts := mountsBelow(t, dir); len(mounts) > 0 {
			t.Errorf("left mounted: %v", mounts)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func mountsBelow(t *testing.T, dir string) (found []string) {
	t.Helper()
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(info)) {
		if f := strings.Fields(line); f[4] == dir || strings.HasPrefix(f[4], dir+"/") {
			found = append(found, f[4])
		}
	}
	return found
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestCreateAllAndRemove(t *testing.T) {
	dir := filepath.Join(short(t), "ns")
	before := map[Kind]uint64{}
	for _, k := range []Kind{Network, IPC, UTS} {
		before[k] = inode(t, "/proc/self/ns/"+string(k))
	}
	err := Create(dir, Options{Network: true, IPC: true, UTS: true, Hostname: "pod-one", Procfs: &Procfs{}, Sysctls: map[string]string{
		"net.ipv4.ip_unprivileged_port_start": "0",
		"net/ipv4/ip_local_port_range":        "20000 20100",
		"kernel.shm_rmid_forced":              "1",
		"kernel.domainname":                   "example.test",
		"fs.mqueue.queues_max":                "7",
	}, Defaults: map[string]string{
		"net/ipv4/ip_unprivileged_port_start": "80", "net.ipv4.ip_local_port_range": "1 2", // named already
		"net.ipv4.ping_group_range": "0 2147483647", "net.ipv4.not_of_this_kernel": "1", "vm.swappiness": "1",
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []Kind{Network, IPC, UTS} {
		if got := inode(t, Path(dir, k)); got == before[k] {
			t.Errorf("%s is the host's namespace", Path(dir, k))
		}
		if now := inode(t, "/proc/self/ns/"+string(k)); now != before[k] {
			t.Errorf("this process's %s namespace changed", k)
		}
		if pinned, err := Pinned(dir, k); err != nil || !pinned {
			t.Errorf("Pinned(%s) = %v, %v", k, pinned, err)
		}
	}
	for _, want := range []struct {
		kind       Kind
		file, text string
	}{
		{UTS, "/proc/sys/kernel/hostname", "pod-one"},
		{UTS, "/proc/sys/kernel/domainname", "example.test"},
		{IPC, "/proc/sys/kernel/shm_rmid_forced", "1"},
		{IPC, "/proc/sys/fs/mqueue/queues_max", "7"},
		{Network, "/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"},
		{Network, "/proc/sys/net/ipv4/ip_local_port_range", "20000\t20100"},
		{Network, "/proc/sys/net/ipv4/ping_group_range", "0\t2147483647"},
	} {
		var got []byte
		err := Run(Path(dir, want.kind), want.kind, func() (err error) { got, err = os.ReadFile(want.file); return err })
		if err != nil || string(bytes.TrimSpace(got)) != want.text {
			t.Errorf("%s holds %q (%v), want %q", want.file, got, err, want.text)
		}
	}
	if err := Create(dir, Options{Network: true}); !errdefs.IsAlreadyExists(err) {
		t.Errorf("second Create: %v, want AlreadyExists", err)
	}
	for range 2 {
		if err := Remove(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("after Remove: %v, want no directory", err)
		}
	}
}

func TestCreateSome(t *testing.T) {
	dir := filepath.Join(short(t), "ns")
	if err := Create(dir, Options{IPC: true}); err != nil {
		t.Fatal(err)
	}
	for _, k := range []Kind{Network, IPC, UTS} {
		if pinned, err := Pinned(dir, k); err != nil || pinned != (k == IPC) {
			t.Errorf("Pinned(%s) = %v, %v", k, pinned, err)
		}
	}
}

func TestFailureLeavesNothing(t *testing.T) {
	for name, o := range map[string]Options{
		"unknown sysctl":        {Network: true, Sysctls: map[string]string{"net.ipv4.no_such_thing": "1"}},
		"value refused":         {Network: true, IPC: true, Sysctls: map[string]string{"net.ipv4.ip_forward": "maybe"}},
		"not in a namespace":    {Network: true, IPC: true, UTS: true, Sysctls: map[string]string{"vm.swappiness": "1"}},
		"namespace of the host": {IPC: true, Sysctls: map[string]string{"net.ipv4.ip_forward": "1"}},
		"hostname of the host":  {Network: true, Hostname: "x"},
		"hostname too long":     {UTS: true, Hostname: strings.Repeat("x", 65)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(short(t), "ns")
			if err := Create(dir, o); err == nil {
				t.Fatal("no error")
			}
			if _, err := os.Lstat(dir); !os.IsNotExist(err) {
				t.Errorf("%s: %v, want no directory", dir, err)
			}
		})
	}
}

// No thread of the process, above all not the first, may be left in a new namespace.
func TestThreadsStayOutside(t *testing.T) {
	before := inode(t, "/proc/self/ns/net")
	dir := filepath.Join(short(t), "ns")
	for range 4 * runtime.GOMAXPROCS(0) {
		if err := errors.Join(Create(dir, Options{Network: true}), Remove(dir)); err != nil {
			t.Fatal(err)
		}
	}
	if now := inode(t, "/proc/self/ns/net"); now != before {
		t.Errorf("the process is in network namespace %d, it began in %d", now, before)
	}
	// The last threads may be on their way out still.
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		inside := strayThreads(before)
		if len(inside) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("threads left in other network namespaces: %v", inside)
		}
	}
}

func strayThreads(home uint64) (stray []string) {
	tasks, _ := filepath.Glob("/proc/self/task/*/ns/net")
	for _, task := range tasks {
		var st unix.Stat_t
		if err := unix.Stat(task, &st); err == nil && st.Ino != home { // an error: the thread has ended meanwhile
			stray = append(stray, task)
		}
	}
	return stray
}

// A reboot takes the mounts, and leaves the files where the run directory is not a tmpfs.
func TestAfterReboot(t *testing.T) {
	dir := filepath.Join(short(t), "ns")
	leave := func() {
		t.Helper()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, k := range []Kind{Network, IPC, UTS} {
			if err := os.WriteFile(Path(dir, k), nil, 0o400); err != nil {
				t.Fatal(err)
			}
		}
	}
	leave()
	if pinned, err := Pinned(dir, Network); err != nil || pinned {
		t.Errorf("Pinned = %v, %v", pinned, err)
	}
	if err := Create(dir, Options{Network: true}); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	leave()
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
}

func TestRemoveKeepsForeignFiles(t *testing.T) {
	dir := filepath.Join(short(t), "ns")
	if err := Create(dir, Options{UTS: true}); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "notes")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err == nil {
		t.Error("no error for a directory that is not empty")
	}
	if err := os.Remove(foreign); err != nil {
		t.Error(err)
	}
}

// The pins stay out of other mount namespaces and out of recursive bind mounts, on a shared mount too; by a mount of their directory's own, or by one that they
// have with others.
func TestPinsAreNotCopied(t *testing.T) {
	for name, apart := range map[string]bool{"a mount of their own": false, "one for many": true} {
		t.Run(name, func(t *testing.T) { pinsAreNotCopied(t, apart) })
	}
}

func pinsAreNotCopied(t *testing.T, apart bool) {
	top := short(t)
	shared, volume := filepath.Join(top, "shared"), filepath.Join(top, "volume")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(shared, 0o700))
	must(os.Mkdir(volume, 0o700))
	must(unix.Mount(shared, shared, "", unix.MS_BIND, ""))
	t.Cleanup(func() { unix.Unmount(shared, unix.MNT_DETACH) })
	must(unix.Mount("", shared, "", unix.MS_SHARED, ""))
	must(unix.Mount(shared, volume, "", unix.MS_BIND, "")) // a peer
	t.Cleanup(func() { unix.Unmount(volume, unix.MNT_DETACH) })

	pods := filepath.Join(shared, "pods")
	must(os.Mkdir(pods, 0o700))
	want := []string{shared, volume}
	if apart {
		must(mount.Separate(pods))
		t.Cleanup(func() { unix.Unmount(pods, unix.MNT_DETACH) })
		want = append(want, pods, filepath.Join(volume, "pods"))
	}
	dir := filepath.Join(pods, "ns")
	must(Create(dir, Options{Network: true, UTS: true, Apart: apart}))
	copied := func(why string) {
		t.Helper()
		for _, k := range []Kind{Network, UTS} {
			if pinned, err := Pinned(filepath.Join(volume, "pods/ns"), k); err != nil || pinned {
				t.Errorf("%s copied the pin of %s: %v, %v", why, k, pinned, err)
			}
		}
	}
	copied("a peer of the shared mount")
	must(unix.Unmount(volume, unix.MNT_DETACH))
	must(unix.Mount(shared, volume, "", unix.MS_BIND|unix.MS_REC, ""))
	copied("a recursive bind mount")
	must(Remove(dir))
	left := mountsBelow(t, top)
	slices.Sort(left)
	slices.Sort(want)
	if !slices.Equal(slices.Compact(left), want) {
		t.Errorf("mounts after Remove: %v, want %v", left, want)
	}
}

// Another mount namespace that holds a copy of everything does not keep Remove from working.
func TestRemoveWithACopyElsewhere(t *testing.T) {
	dir := filepath.Join(short(t), "ns")
	if err := Create(dir, Options{Network: true}); err != nil {
		t.Fatal(err)
	}
	copied, release, done := make(chan error), make(chan struct{}), make(chan error)
	go func() {
		done <- onThread(func() error {
			err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
			copied <- err
			<-release
			return err
		})
	}()
	if err := <-copied; err != nil {
		t.Error(err)
	}
	if err := errors.Join(Remove(dir), Remove(dir)); err != nil {
		t.Error(err)
	}
	close(release)
	<-done
}

func TestCheckSysctls(t *testing.T) {
	for name, ok := range map[string]bool{
		"net.core.somaxconn":               true,
		"net/core/somaxconn":               true,
		"net.ipv4.conf.eth0/1.forwarding":  true,
		"kernel.sem":                       true,
		"kernel.shmmax":                    true,
		"kernel.msgmax":                    true,
		"fs.mqueue.msg_max":                true,
		"kernel.domainname":                true,
		"kernel.hostname":                  false, // the sandbox's hostname is a field of its own
		"kernel.semaphore":                 false,
		"kernel.panic":                     false,
		"fs.file-max":                      false,
		"vm.swappiness":                    false,
		"net":                              false,
		"":                                 false,
		"net..core":                        false,
		"net/../kernel/panic":              false,
		"net.//.kernel.panic":              false,
		"/net/core/somaxconn":              false,
		"net.ipv4.conf.all.forwarding\x00": false,
	} {
		o := Options{Network: true, IPC: true, UTS: true, Sysctls: map[string]string{name: "1"}}
		if err := CheckSysctls(o); (err == nil) != ok || err != nil && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v, want ok = %v", name, err, ok)
		}
	}
}

func BenchmarkCreateRemove(b *testing.B) {
	dir := b.TempDir() + "/ns"
	for b.Loop() {
		if err := Create(dir, Options{Network: true, IPC: true, UTS: true, Hostname: "bench"}); err != nil {
			b.Fatal(err)
		}
		if err := Remove(dir); err != nil {
			b.Fatal(err)
		}
	}
}

// TestProcfs: sysctls are those of the calling thread's namespace in a procfs of one's own, in the next one after that, and in the host's.
func TestProcfs(t *testing.T) {
	dir := filepath.Join(short(t), "ns")
	if err := Create(dir, Options{Network: true}); err != nil {
		t.Fatal(err)
	}
	defer Remove(dir)
	const file = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var own Procfs
	var first *os.File
	for i := range 2*procfsUses + 2 {
		in := &own
		if i%(procfsUses/2) == 1 {
			in = nil
		}
		value := fmt.Sprint(700 + i)
		if err := Run(Path(dir, Network), Network, func() error {
			if err := set([]setting{{name: file, path: "net/ipv4/ip_unprivileged_port_start", value: value}}, nil, in); err != nil {
				return err
			}
			now, err := os.ReadFile(file)
			if err == nil && strings.TrimSpace(string(now)) != value {
				err = fmt.Errorf("it is %q, want %s", now, value)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		if first == nil {
			first = own.sys
		}
	}
	if own.sys == nil || own.sys == first || own.uses > procfsUses {
		t.Errorf("after %d uses it is the procfs of the beginning", 2*procfsUses)
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != string(before) {
		t.Errorf("of the host it is %q, %v, and was %q", now, err, before)
	}
}

// BenchmarkCreateAmong makes namespaces with sysctls, as each pod has, beside few and beside many others.
func BenchmarkCreateAmong(b *testing.B) {
	base := b.TempDir()
	o := Options{Network: true, IPC: true, UTS: true, Hostname: "bench", Procfs: &Procfs{}, Defaults: map[string]string{
		"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "0 2147483647"}}
	made := 0
	b.Cleanup(func() {
		for i := range made {
			if err := Remove(fmt.Sprint(base, "/other", i)); err != nil {
				b.Error(err)
			}
		}
	})
	for _, others := range []int{0, 1000} {
		for ; made < others; made++ {
			if err := Create(fmt.Sprint(base, "/other", made), o); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprint(others), func(b *testing.B) {
			for b.Loop() {
				if err := Create(base+"/ns", o); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := Remove(base + "/ns"); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
