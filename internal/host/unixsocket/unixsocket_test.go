package unixsocket

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const patience = time.Minute

// folder is a short one: a unix socket's path is.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "us")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// greet accepts connections and says hello to each.
func greet(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "hello")
		conn.Close()
	}
}

// greeted says whether a greeter is at the path.
func greeted(path string) bool {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return false
	}
	defer conn.Close()
	words, err := io.ReadAll(conn)
	return err == nil && string(words) == "hello"
}

// keep runs Keep; told are the words that it tells, empty ones for nil.
func keep(t *testing.T, path string) (told chan string, stop func()) {
	t.Helper()
	told = make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Keep(ctx, Config{Path: path, Serve: greet, Tell: func(err error) {
			if err == nil {
				told <- ""
			} else {
				told <- err.Error()
			}
		}})
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return told, stop
}

func await(t *testing.T, told chan string, want string) {
	t.Helper()
	select {
	case got := <-told:
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Fatalf("told %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("nothing was told, want %q", want)
	}
}

func TestCheck(t *testing.T) {
	long := "/" + strings.Repeat("d", 94)
	for path, want := range map[string]string{
		"/run/a.sock":                 "",
		long + "/a.sock":              "",
		long + "/kubelet.sock":        "107 are possible",
		"/" + long + "d/a":            "95 in the folder's part",
		"run/a.sock":                  "not absolute",
		"":                            "not absolute",
		"/run/a\x00b":                 "zero byte",
		"/run/" + long + "/" + "a.sk": "107 are possible",
	} {
		if err := Check(path); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
	// What is just short enough can be made.
	path := filepath.Join(folder(t), strings.Repeat("d", 200))
	path = path[:maxPath-len("/kubelet.sock")] + "/kubelet.sock"
	told, stop := keep(t, path)
	await(t, told, "")
	if !greeted(path) {
		t.Error("not served")
	}
	stop()
}

func TestKeep(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := filepath.Join(folder(t), "made")
	path := filepath.Join(dir, "a.sock")
	told, stop := keep(t, path)
	await(t, told, "")
	for path, want := range map[string]fs.FileMode{path: fs.ModeSocket | 0o600, dir: fs.ModeDir | 0o750} {
		if st, err := os.Stat(path); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, st.Mode(), err, want)
		}
	}
	if !greeted(path) {
		t.Error("not served")
	}
	// It is made again, with its folder.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); !greeted(path); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the socket was not made again")
		}
	}
	stop()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left in the folder: %v, %v", entries, err)
	}
}

// What a killed program leaves is replaced: its socket, and one that had not got its name yet.
func TestDeadSocketIsReplaced(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := folder(t)
	path := filepath.Join(dir, "a.sock")
	for _, p := range []string{path, filepath.Join(dir, HiddenPrefix+"00000000")} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	if Served(t.Context(), path) {
		t.Error("the dead socket is said to be served")
	}
	told, stop := keep(t, path)
	await(t, told, "")
	if entries, err := os.ReadDir(dir); !greeted(path) || err != nil || len(entries) != 1 {
		t.Errorf("in the folder: %v, %v", entries, err)
	}
	stop()
}

func TestLivingSocketIsLeft(t *testing.T) {
	defer goleak.VerifyNone(t)
	path := filepath.Join(folder(t), "a.sock")
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	was, _, _ := At(path)
	told, stop := keep(t, path)
	await(t, told, "another program serves")
	if at, _, _ := At(path); at != was {
		t.Error("the other program's socket was replaced")
	}
	other.Close() // and removes it
	await(t, told, "")
	if !greeted(path) {
		t.Error("not served")
	}
	// One that another has put in its place is not removed at the end.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if other, err = net.Listen("unix", path); err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	stop()
	if _, err := os.Lstat(path); err != nil {
		t.Error("the other program's socket was removed")
	}
}

func TestWhatIsNoSocketIsLeft(t *testing.T) {
	path := filepath.Join(folder(t), "a.sock")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	told, stop := keep(t, path)
	await(t, told, "no socket: remove it")
	stop()
	if content, err := os.ReadFile(path); string(content) != "mine" || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file has become %q, %v", content, err)
	}
}
