package container

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestReadIn(t *testing.T) {
	root := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	for _, err := range []error{
		os.WriteFile(outside, []byte("secret"), 0o600),
		os.Mkdir(filepath.Join(root, "etc"), 0o755),
		os.WriteFile(filepath.Join(root, "etc/file"), []byte("text"), 0o600),
		os.Symlink("/etc/file", filepath.Join(root, "absolute")),
		os.Symlink("../../../../../../.."+outside, filepath.Join(root, "climbs")),
		os.Symlink("loop", filepath.Join(root, "loop")),
		os.Symlink("/proc/self/fd/0", filepath.Join(root, "magic")),
		unix.Mkfifo(filepath.Join(root, "fifo"), 0o600),
		unix.Mknod(filepath.Join(root, "zero"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))),
		os.Truncate(filepath.Join(root, "etc/file"), 4),
		os.WriteFile(filepath.Join(root, "huge"), nil, 0o600),
		os.Truncate(filepath.Join(root, "huge"), maxRootFile+1),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"etc/file": "text", "absolute": "text", "missing": "", "etc/file/below": "", "climbs": "", "magic": ""} {
		if got, err := readIn(root, name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"fifo", "zero", "etc", "loop", "huge"} {
		if got, err := readIn(root, name); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "/"+name) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if _, err := readIn(filepath.Join(root, "none"), "x"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("no root: %v", err)
	}
}

func TestParseSignal(t *testing.T) {
	for name, want := range map[string]int{"": 15, "TERM": 15, "SIGTERM": 15, "sigusr1": 10, "9": 9, "SIGRTMIN": 34, "RTMIN+3": 37, "SIGRTMIN+3": 37,
		"RTMINPLUS3": 37, "SIGRTMAX-1": 63, "RTMAXMINUS2": 62, "64": 64} {
		if got, err := parseSignal(name); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", name, got, err, want)
		}
	}
	for _, name := range []string{"0", "65", "-1", "NOPE", "SIGRTMIN+99", "RTMIN-1", "SIGRTMAX+1", "RTMINx", "SIG"} {
		if got, err := parseSignal(name); err == nil {
			t.Errorf("%q: %d", name, got)
		}
	}
}

// TestCRISignals: each signal that CRI knows can be sent, and is told by its name.
func TestCRISignals(t *testing.T) {
	for n, name := range cri.Signal_name {
		asked := cri.Signal(n)
		if asked == cri.Signal_SIGNAL_RUNTIME_DEFAULT {
			continue
		}
		number, _, err := stopSignal(&cri.ContainerConfig{StopSignal: asked}, "SIGUSR1")
		if got := CRISignal(number, asked); err != nil || got != asked || number < 1 {
			t.Errorf("%s: %d, %s, %v", name, number, got, err)
		}
		if got := CRISignal(number, 0); got == 0 {
			t.Errorf("%s: %d has no name when another one was not asked for", name, number)
		}
	}
	for image, want := range map[string]cri.Signal{"": cri.Signal_SIGNAL_SIGTERM, "SIGQUIT": cri.Signal_SIGNAL_SIGQUIT, "9": cri.Signal_SIGNAL_SIGKILL} {
		n, wrong, err := stopSignal(&cri.ContainerConfig{}, image)
		if got := CRISignal(n, 0); err != nil || wrong != nil || got != want {
			t.Errorf("of the image %q: %s, %v, %v", image, got, wrong, err)
		}
	}
	// An image that names none runs all the same, as with other runtimes; a client is told.
	for _, image := range []string{"BOGUS", "0", "65", "SIGRTMIN+99"} {
		n, wrong, err := stopSignal(&cri.ContainerConfig{}, image)
		if got := CRISignal(n, 0); err != nil || wrong == nil || got != cri.Signal_SIGNAL_SIGTERM {
			t.Errorf("of the image %q: %s, %v, %v", image, got, wrong, err)
		}
	}
	if _, _, err := stopSignal(&cri.ContainerConfig{StopSignal: 4711}, "SIGQUIT"); err == nil {
		t.Error("a client's signal that is none is taken")
	}
}

func FuzzParseSignal(f *testing.F) {
	for _, s := range []string{"", "TERM", "SIGRTMIN+3", "RTMAXMINUS2", "64"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if n, err := parseSignal(name); err == nil && (n < 1 || n > realTimeMax) {
			t.Errorf("%q is %d", name, n)
		}
	})
}

// TestWalksAreRepeated: what others rename on the host meanwhile is no fault of a path.
func TestWalksAreRepeated(t *testing.T) {
	root, busy := t.TempDir(), t.TempDir()
	for _, dir := range []string{"a/b/c", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(filepath.Join(root, "etc/real"), []byte("x"), 0o644), os.Symlink("../a/b/c/../../../../../etc/real", filepath.Join(root, "etc/passwd"))); err != nil {
		t.Fatal(err)
	}
	from, to := filepath.Join(busy, "from"), filepath.Join(busy, "to")
	if err := os.Mkdir(from, 0o755); err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				if err := errors.Join(os.Rename(from, to), os.Rename(to, from)); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	for i := range 5000 {
		raw, err := readIn(root, "etc/passwd")
		if err != nil || string(raw) != "x" {
			t.Errorf("walk %d: %q, %v", i, raw, err)
			break
		}
		if found, err := within(root, "a/b/../../../etc/passwd"); err != nil || found != filepath.Join(root, "etc/real") {
			t.Errorf("walk %d: %s, %v", i, found, err)
			break
		}
	}
	close(stop)
	<-ended
}
