package mountns

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/mount"
)

// deadline ends a test that has failed.
const deadline = 60 * time.Second

type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// host is a folder that stands for the host's, and that must be the same after the test, with the mounts of this process.
func host(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	ignore := goleak.IgnoreCurrent()
	dir := t.TempDir()
	before := mounts(t)
	t.Cleanup(func() {
		if after := mounts(t); !slices.Equal(before, after) {
			t.Errorf("mounts before:\n%s\nafter:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
		}
		goleak.VerifyNone(t, ignore)
	})
	return dir
}

func mounts(t *testing.T) (all []string) {
	t.Helper()
	infos, err := mountinfo.GetMounts(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range infos {
		all = append(all, m.Mountpoint+" "+m.FSType)
	}
	slices.Sort(all)
	return slices.DeleteFunc(all, func(s string) bool { return !strings.Contains(s, "/Test") }) // others' tests mount, too
}

// runs starts a shell script and kills it with the test.
func runs(t *testing.T, script string, folders ...Folder) (*Process, *output) {
	t.Helper()
	out := &output{}
	p, err := Start(Config{Folders: folders, Command: []string{"sh", "-c", script}, Output: out})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(t, p) })
	return p, out
}

func kill(t *testing.T, p *Process) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	outlived, err := p.Kill(ctx)
	if err != nil {
		t.Error(err)
	}
	return outlived
}

func ended(t *testing.T, p *Process) (string, bool) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(deadline):
		t.Fatal("it does not end")
	}
	return p.Ended()
}

func listing(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		all = append(all, path+" "+d.Type().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestPathThatIsNotThere: the program sees folders at paths that the host does not have, and beside them all that the host has.
func TestPathThatIsNotThere(t *testing.T) {
	dir := host(t)
	lib, ours, other := filepath.Join(dir, "lib"), filepath.Join(dir, "ours"), filepath.Join(dir, "other")
	must(t, os.MkdirAll(filepath.Join(lib, "app", "deep"), 0o755), os.WriteFile(filepath.Join(lib, "file"), []byte("host's"), 0o600),
		os.Symlink("app/deep", filepath.Join(lib, "link")), os.Mkdir(ours, 0o700), os.Mkdir(other, 0o700),
		unix.Mknod(filepath.Join(lib, "fifo"), unix.S_IFIFO|0o600, 0), os.Chmod(lib, 0o711))
	must(t, mount.Tmpfs(filepath.Join(lib, "app"), mount.TmpfsOptions{}))
	t.Cleanup(func() { must(t, mount.Unmount(filepath.Join(lib, "app"))) })
	must(t, os.Mkdir(filepath.Join(lib, "app", "deep"), 0o755))
	before := listing(t, lib)

	p, out := runs(t, `set -e
cd `+lib+`
stat -c %a .
cat file; echo; readlink link; ls -d link/; test -p fifo && echo fifo
echo from program > kubelet/device-plugins/socket
echo too > kubelet/registry/entry
echo lost > new
touch app/deep/kept
ls`, Folder{ours, filepath.Join(lib, "kubelet/device-plugins")}, Folder{other, filepath.Join(lib, "kubelet/registry")})
	how, failed := ended(t, p)
	want := "711\nhost's\napp/deep\nlink/\nfifo\napp\nfifo\nfile\nkubelet\nlink\nnew\n"
	if failed || out.String() != want {
		t.Errorf("%s, output:\n%s\nwant:\n%s", how, out, want)
	}
	for path, content := range map[string]string{filepath.Join(ours, "socket"): "from program\n", filepath.Join(other, "entry"): "too\n"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	must(t, os.Remove(filepath.Join(lib, "app/deep/kept"))) // what the program does to the host's own folders it has done
	if after := listing(t, lib); !slices.Equal(before, after) {
		t.Errorf("before:\n%s\nafter:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// TestPathThatIsThere: a folder of the host is hidden from the program, and stays as it is.
func TestPathThatIsThere(t *testing.T) {
	dir := host(t)
	kubelet, ours := filepath.Join(dir, "elsewhere", "device-plugins"), filepath.Join(dir, "ours")
	must(t, os.MkdirAll(kubelet, 0o755), os.Mkdir(ours, 0o700), os.WriteFile(filepath.Join(kubelet, "kubelet.sock"), nil, 0o600),
		os.Symlink("elsewhere", filepath.Join(dir, "kubelet")))
	p, out := runs(t, "cd "+dir+"/kubelet/device-plugins && ls -A && touch mine && exec sleep 1000", Folder{ours, filepath.Join(dir, "kubelet/device-plugins")})
	for end := time.Now().Add(deadline); ; time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(ours, "mine")); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the program has written nothing to our folder: %s", out)
		}
	}
	if _, err := os.Stat(p.Path(filepath.Join(dir, "kubelet/device-plugins/mine"))); err != nil {
		t.Errorf("what the program sees: %v", err)
	}
	if got := listing(t, kubelet); len(got) != 2 {
		t.Errorf("the host's folder has %q", got)
	}
	must(t, p.Signal(unix.SIGTERM))
	if how, failed := ended(t, p); how != "signal: terminated" || !failed {
		t.Errorf("it ended: %s (failed: %t)", how, failed)
	}
	must(t, p.Signal(unix.SIGTERM))
	if out.String() != "" {
		t.Errorf("the program sees what the host has there: %s", out)
	}
}

// TestKillLeavesNothing: what the program has started ends with it, wherever it has moved itself; who has outlived it is named.
func TestKillLeavesNothing(t *testing.T) {
	host(t)
	p, out := runs(t, "setsid sleep 1000 & setsid setsid sleep 1000 & echo started")
	if how, failed := ended(t, p); failed {
		t.Fatalf("%s: %s", how, out)
	}
	outlived := kill(t, p)
	if len(outlived) != 2 {
		t.Errorf("outlived: %q", outlived)
	}
	if _, err := os.Stat(p.Path("/")); err == nil {
		t.Error("the program is still there")
	}
	p, _ = runs(t, "sleep 1000 & sleep 1000")
	if outlived := kill(t, p); len(outlived) != 0 {
		t.Errorf("killed with the program, and named: %q", outlived)
	}
}

// TestOthersLive: the kernel gives the number of a namespace that is gone to the next one, whose processes are nobody's to kill.
func TestOthersLive(t *testing.T) {
	host(t)
	first, _ := runs(t, "true")
	ended(t, first)
	var others []*Process
	for range 20 {
		p, _ := runs(t, "exec sleep 1000")
		others = append(others, p)
	}
	kill(t, first)
	for _, p := range others {
		select {
		case <-p.Done():
			how, _ := p.Ended()
			t.Fatalf("another program ended: %s", how)
		default:
		}
		must(t, p.Signal(0))
	}
}

func TestWhatCannotBeDone(t *testing.T) {
	dir := host(t)
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	for target, part := range map[string]string{
		"relative": "not an absolute path", filepath.Join(dir, "file"): "is no folder", filepath.Join(dir, "dangling", "sub"): "is a symbolic link to nowhere",
		"/no-such-folder/sub": "the root of the file system cannot be covered",
	} {
		_, err := Start(Config{Folders: []Folder{{dir, target}}, Command: []string{"true"}})
		if err == nil || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), target) {
			t.Errorf("%s: %v, want %q", target, err, part)
		}
	}
	if _, err := Start(Config{}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("no command: %v", err)
	}
	if _, err := Start(Config{Command: []string{filepath.Join(dir, "none")}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such program: %v", err)
	}
}
