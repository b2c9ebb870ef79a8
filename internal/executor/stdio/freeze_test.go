package stdio

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/crilog"
)

func testPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	r, w = os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// content puts a log's lines together again, as its readers do.
func content(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(raw)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		b.WriteString(f[3])
		if f[2] == "F" {
			b.WriteString("\n")
		}
	}
	return b.String()
}

// duplicate is the descriptor as another process would have it.
func duplicate(t *testing.T, f *os.File) *os.File {
	t.Helper()
	rc, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var dup int
	if err := rc.Control(func(fd uintptr) { dup, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) }); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(dup), "duplicate")
}

// TestFreeze: writers that follow one another while a container prints without pause lose no byte and have none twice, whether the output stops in a line
// or not; and neither does a client.
func TestFreeze(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	r, w := testPipe(t)
	ended := make(chan struct{})
	var said bytes.Buffer
	done := make(chan struct{})
	go func() { // lines of any length
		defer close(done)
		defer w.Close()
		for i := range 4000 {
			line := strings.Repeat("x", i*7919%20000) + "\n"
			said.WriteString(line)
			if _, err := io.WriteString(w, line); err != nil {
				t.Error(err)
			}
		}
	}()
	log, err := crilog.Open(path, crilog.Rotation{})
	if err != nil {
		t.Fatal(err)
	}
	last := r
	for turn := 0; ; turn++ {
		next := duplicate(t, last) // as the keeper holds it
		s := New(Config{Stdout: last, Log: log, Ended: ended, Logger: slog.New(slog.DiscardHandler)})
		select {
		case <-s.Drained():
			s.Close()
			<-done
			if got := content(t, path); got != said.String() {
				t.Errorf("after %d turns the log has %d bytes, want %d, or others", turn, len(got), said.Len())
			}
			if turn < 3 {
				t.Errorf("%d turns only", turn)
			}
			return
		case <-time.After(time.Duration(turn%7) * time.Millisecond): // the moment is the input
		}
		if err := s.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		if turn%3 == 0 {
			s.Thaw() // a handover that was taken back
			if err := s.Freeze(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		last = next // the first process ends: s is never thawed
		t.Cleanup(s.Close)
		if log, err = crilog.OpenAgain(path, crilog.Rotation{}, false); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFreezeAndClients: who is attached has had all that was read, unless it does not read.
func TestFreezeAndClients(t *testing.T) {
	r, w := testPipe(t)
	ended := make(chan struct{})
	s := New(Config{Stdout: r, Ended: ended, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(s.Close)
	got, client := testPipe(t)
	_, lazy := testPipe(t)
	attached := make(chan error, 2)
	for _, f := range []*os.File{duplicate(t, client), duplicate(t, lazy)} {
		go func() { attached <- s.Attach(t.Context(), Attachment{Stdout: f}) }()
	}
	for {
		s.mu.Lock()
		n := len(s.clients)
		s.mu.Unlock()
		if n == 2 {
			break
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // there is no event for it
	}
	text := strings.Repeat("abcdefgh", 16<<10) // more than a pipe takes
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	read := make(chan string, 1)
	go func() {
		buf := make([]byte, len(text))
		_, err := io.ReadFull(got, buf)
		if err != nil {
			t.Error(err)
		}
		read <- string(buf)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // for the lazy one
	defer cancel()
	if err := s.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	s.Thaw()
	if <-read != text {
		t.Error("the client has read something else")
	}
	w.Close()
	close(ended)
}
