package executor_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
)

func TestLog(t *testing.T) {
	n := newNode(t)
	req := n.bundle("a", nil, "sh", "-c", "echo one; echo two >&2; printf 'no newline'")
	n.run(req)
	got := readLog(t, req.LogPath)
	slices.SortFunc(got, func(a, b logLine) int { return strings.Compare(a.text, b.text) }) // stdout and stderr are two pipes
	want := []logLine{{"stdout", "F", "no newline"}, {"stdout", "F", "one"}, {"stderr", "F", "two"}}
	if !slices.Equal(got, want) {
		t.Errorf("log %+v, want %+v", got, want)
	}
}

func TestLogOfLongLines(t *testing.T) {
	n := newNode(t)
	const size = 40000
	req := n.bundle("a", nil, "sh", "-c", fmt.Sprintf("head -c %d /dev/zero | busybox tr '\\0' x; echo; echo end", size))
	n.run(req)
	var tags, text string
	for _, l := range readLog(t, req.LogPath) {
		tags += l.tag
		text += l.text
	}
	if tags != "PPFF" || text != strings.Repeat("x", size)+"end" {
		t.Errorf("tags %s, %d bytes; want PPFF, %d bytes", tags, len(text), size+3)
	}
}

func TestLogOfBurst(t *testing.T) {
	n := newNode(t)
	const lines = 200000
	req := n.bundle("a", nil, "seq", fmt.Sprint(lines))
	if e := n.run(req); e.Code != 0 {
		t.Errorf("exit %+v", e)
	}
	for i, l := range readLog(t, req.LogPath) {
		if l != (logLine{"stdout", "F", fmt.Sprint(i + 1)}) {
			t.Fatalf("line %d is %+v", i+1, l)
		}
		if i+1 == lines {
			return
		}
	}
	t.Error("lines are missing")
}

func TestLogOfTerminal(t *testing.T) {
	n := newNode(t)
	req := n.bundle("a", func(s *specs.Spec) {
		s.Process.Terminal = true
		s.Process.ConsoleSize = &specs.Box{Width: 91, Height: 17}
	}, "sh", "-c", "tty; stty size; echo err >&2; exit 4")
	if e := n.run(req); e.Code != 4 {
		t.Errorf("exit %+v, want 4", e)
	}
	want := []logLine{{"stdout", "F", "/dev/pts/0\r"}, {"stdout", "F", "17 91\r"}, {"stdout", "F", "err\r"}}
	if got := readLog(t, req.LogPath); !slices.Equal(got, want) {
		t.Errorf("log %+v, want %+v", got, want)
	}
}

func TestReopenLog(t *testing.T) {
	n := newNode(t)
	req := n.bundle("a", nil, "sh", "-c", "echo one; read x; echo two")
	req.Stdin = true
	n.start(req)
	eventually(t, "the first line", func() bool { return len(readLog(t, req.LogPath)) == 1 })
	if err := os.Rename(req.LogPath, req.LogPath+".1"); err != nil {
		t.Fatal(err)
	}
	if err := n.c.ReopenLog(n.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	n.send("a", "\n")
	n.exit("a")
	if got := texts(readLog(t, req.LogPath)); !slices.Equal(got, []string{"two"}) {
		t.Errorf("new log %q", got)
	}
	if got := texts(readLog(t, req.LogPath+".1")); !slices.Equal(got, []string{"one"}) {
		t.Errorf("old log %q", got)
	}
	os.Remove(req.LogPath)
	if err := n.c.ReopenLog(n.ctx(), "a"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("ReopenLog after the exit: %v, want FailedPrecondition", err)
	}
	if _, err := os.Stat(req.LogPath); err == nil {
		t.Error("a ReopenLog that failed made a file")
	}
}

// An orphan that keeps the output open delays the exit by no more than the grace, and its output is logged.
func TestOutputOfOrphan(t *testing.T) {
	n := newNode(t)
	req := n.bundle("a", func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[1:] }, // without a PID namespace
		"sh", "-c", "exec 3<&0; (read x <&3; echo late) & echo $!; exit 5")
	req.Stdin = true
	n.start(req)
	if e := n.exit("a"); e.Code != 5 {
		t.Errorf("exit %+v, want 5", e)
	}
	n.send("a", "\n")
	eventually(t, "the orphan's line", func() bool { return len(readLog(t, req.LogPath)) == 2 })
}

// send writes to a container's stdin.
func (n *node) send(id, text string) {
	n.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		n.t.Fatal(err)
	}
	defer r.Close()
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(n.ctx())
	go func() { done <- n.c.Attach(ctx, protocol.AttachRequest{ID: id, Stdin: true}, r) }()
	if _, err := w.WriteString(text); err != nil {
		n.t.Fatal(err)
	}
	w.Close()
	// The pipe is empty when the executor has read what we wrote; it has then written it before it looks at the end.
	eventually(n.t, "stdin is taken", func() bool { return pipeEmpty(r) })
	cancel()
	<-done
}

func pipeEmpty(r *os.File) bool {
	n, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
	return err == nil && n == 0
}
