package plugin

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/kit/wait"
)

// A plugin that looks out for IN_CREATE alone sees the socket come, and whoever sees it is served.
func TestSocketIsServedBeforeItIsVisible(t *testing.T) {
	dir := folder(t)
	deadSocket(t, filepath.Join(dir, kubeletSocket)) // what a killed node leaves
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := unix.Read(fd, buf)
			if err != nil {
				served <- err
				return
			}
			if strings.Contains(string(buf[:n]), kubeletSocket) {
				conn, err := net.Dial("unix", filepath.Join(dir, kubeletSocket))
				if err == nil {
					conn.Close()
				}
				served <- err
				return
			}
		}
	}()
	startIn(t, dir)
	select {
	case err := <-served:
		if err != nil {
			t.Errorf("kubelet.sock was created and not served: %v", err)
		}
	case <-time.After(deadline):
		t.Error("no IN_CREATE of kubelet.sock")
	}
}

func TestSocketIsRootsAlone(t *testing.T) {
	dir := filepath.Join(folder(t), "made")
	n := startIn(t, dir)
	for path, want := range map[string]fs.FileMode{n.socket(): fs.ModeSocket | 0o600, dir: fs.ModeDir | 0o750} {
		if st, err := os.Stat(path); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, st.Mode(), err, want)
		}
	}
	n.stop()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left in the folder: %v, %v", entries, err)
	}
}

// replaced waits until a path is another file than it was, or there again.
func replaced(t *testing.T, path string, was file) {
	t.Helper()
	eventually(t, path+" anew", func() bool {
		at, _, err := fileAt(path)
		return err == nil && at != was
	})
}

func TestSocketIsMadeAgain(t *testing.T) {
	n := start(t)
	p, _ := n.plug(emulator.Config{Devices: emulator.Devices(2, 0)})
	n.awaitHealthy(resource, 2)
	was, _, _ := fileAt(n.socket())
	if err := os.Remove(n.socket()); err != nil {
		t.Fatal(err)
	}
	replaced(t, n.socket(), was)
	eventually(t, "the plugin registers again", func() bool { return p.Streams.Load() >= 2 })
	n.awaitHealthy(resource, 2)
}

func TestFolderIsMadeAgain(t *testing.T) {
	n := start(t)
	was, _, _ := fileAt(n.socket())
	away := n.cfg.Dir + ".old" // at once, so that nothing comes into it meanwhile
	if err := os.Rename(n.cfg.Dir, away); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(away)
	replaced(t, n.socket(), was)
	n.plug(emulator.Config{Devices: emulator.Devices(1, 0)})
	n.awaitHealthy(resource, 1)
}

// Two agents on one folder would take the plugins from each other for ever: the one that was first has it.
func TestSocketOfAnotherProgramIsLeft(t *testing.T) {
	dir := folder(t)
	path := filepath.Join(dir, kubeletSocket)
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	was, _, _ := fileAt(path)
	n := startIn(t, dir)
	n.awaitProblem("register with another program")
	if at, _, _ := fileAt(path); at != was {
		t.Error("the other program's socket was replaced")
	}
	other.Close() // and removes it
	n.await("no problem", func(s *inventory.Snapshot) bool { return len(s.Problems) == 0 })
	n.plug(emulator.Config{Devices: emulator.Devices(1, 0)})
	n.awaitHealthy(resource, 1)
}

func TestWhatIsNoSocketIsNotRemoved(t *testing.T) {
	dir := folder(t)
	path := filepath.Join(dir, kubeletSocket)
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := startIn(t, dir)
	n.awaitProblem("this is no socket: remove it")
	if content, err := os.ReadFile(path); string(content) != "mine" {
		t.Fatalf("the file has become %q, %v", content, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	n.await("no problem", func(s *inventory.Snapshot) bool { return len(s.Problems) == 0 })
}

// A plugin that follows kubelet.sock keeps its own: it is not removed under its feet.
func TestOldSocketOfAPluginThatRegistersIsKept(t *testing.T) {
	dir := folder(t)
	first := startIn(t, dir)
	registered := make(chan error, 10)
	plug(t, emulator.Config{Dir: dir, Devices: emulator.Devices(2, 0), IgnoreOwnSocket: true, Hooks: emulator.Hooks{Registered: func(err error) { registered <- err }}})
	first.awaitHealthy(resource, 2)
	first.stop()
	second := startIn(t, dir)
	second.awaitHealthy(resource, 2)
	at, _, err := fileAt(filepath.Join(dir, "emulator.sock"))
	if err != nil || wait.For(t.Context(), 2*second.pace.silence) != nil {
		t.Fatal(err)
	}
	if now, _, err := fileAt(filepath.Join(dir, "emulator.sock")); err != nil || now != at {
		t.Errorf("the plugin's socket was removed: %v", err)
	}
}

// Intel's plugins and others register again only when a kubelet has removed their sockets.
func TestPluginThatWaitsForTheRemovalOfItsSocket(t *testing.T) {
	dir := folder(t)
	first := startIn(t, dir)
	plug(t, emulator.Config{Dir: dir, Devices: emulator.Devices(2, 0), IgnoreKubeletSocket: true})
	first.awaitHealthy(resource, 2)
	first.stop()
	second := startIn(t, dir)
	second.awaitHealthy(resource, 2)
}

// What is in the folder and no device plugin is somebody else's.
func TestSocketThatIsNoPluginIsKept(t *testing.T) {
	dir := folder(t)
	l, err := net.Listen("unix", filepath.Join(dir, "mine.sock"))
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			conn.Close()
			close(asked)
		}
	}()
	startIn(t, dir)
	select {
	case <-asked:
	case <-time.After(deadline):
		t.Fatal("nobody asked")
	}
	if _, err := os.Lstat(filepath.Join(dir, "mine.sock")); errors.Is(err, fs.ErrNotExist) {
		t.Error("the socket was removed")
	}
	l.Close()
}

// generic-device-plugin's socket has the time of its start in its name. One that was killed leaves it, and so do all that follow.
func TestSocketOfAKilledPluginIsRemoved(t *testing.T) {
	dir := folder(t)
	dead, mine := filepath.Join(dir, "gdp-1795414654.sock"), filepath.Join(dir, "gdp-1795414654.txt")
	deadSocket(t, dead)
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	startIn(t, dir)
	eventually(t, "the socket is gone", func() bool {
		_, err := os.Lstat(dead)
		return errors.Is(err, fs.ErrNotExist)
	})
	if _, err := os.Lstat(mine); err != nil {
		t.Errorf("what is no socket has gone too: %v", err)
	}
}

// deadSocket leaves a socket that nobody serves.
func deadSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestHiddenSocketOfAKilledNodeIsRemoved(t *testing.T) {
	dir := folder(t)
	hidden := filepath.Join(dir, hiddenPrefix+"00000000")
	deadSocket(t, hidden)
	startIn(t, dir)
	if _, err := os.Lstat(hidden); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", hidden, err)
	}
}
