package executor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/ids"
)

func TestLog(t *testing.T) {
	n := newNode(t)
	req := n.bundle("a", nil, "sh", "-c", "echo one; echo two >&2; printf 'no newline'")
	n.run(req)
	got := readLog(t, req.LogPath)
	slices.SortFunc(got, func(a, b logLine) int { return strings.Compare(a.text, b.text) }) // stdout and stderr are two pipes
	want := []logLine{{"stdout", "P", "no newline"}, {"stdout", "F", "one"}, {"stderr", "F", "two"}}
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

// Without a PID namespace of its own the kernel does not end a container's processes with its first one. The executor does, so
// that neither they nor their hold on the output outlive the exit.
func TestOrphansEndWithTheirContainer(t *testing.T) {
	n := newNode(t)
	req := n.bundle("a", func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[1:] }, // without a PID namespace
		"sh", "-c", "trap '' TERM HUP; sleep 3600 & echo $!; exit 5")
	n.start(req)
	if e := n.exit("a"); e.Code != 5 {
		t.Errorf("exit %+v, want 5", e)
	}
	lines := texts(readLog(t, req.LogPath))
	if len(lines) != 1 {
		t.Fatalf("log %q", lines)
	}
	pid, err := strconv.Atoi(lines[0])
	if err != nil {
		t.Fatal(err)
	}
	if stat, err := proc.ReadStat(pid); err == nil && !stat.Dead() {
		t.Errorf("the orphan %d lives on: %+v", pid, stat)
	}
}

// send writes to a container's stdin.
func (n *node) send(id ids.ContainerID, text string) {
	n.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		n.t.Fatal(err)
	}
	defer r.Close()
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(n.ctx())
	go func() {
		for {
			err := n.c.Attach(ctx, protocol.AttachRequest{ID: id, Stdin: true}, r)
			if !errdefs.IsUnavailable(err) || ctx.Err() != nil { // else it met a worker that has been killed just before
				done <- err
				return
			}
		}
	}()
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

// The writer rotates: however fast the container prints, and though the worker is killed, the files are within their
// limit, no line is torn, and the worker's death loses no more than one read buffer.
func TestLogRotation(t *testing.T) {
	n := newNode(t)
	const lines, limit = 200000, 64 << 10
	req := n.bundle("a", nil, "seq", fmt.Sprint(lines))
	req.LogMaxBytes, req.LogMaxFiles = limit, 1000
	n.start(req)
	rotated := func() (files []string) {
		files, _ = filepath.Glob(req.LogPath + ".*")
		return files
	}
	eventually(t, "the log is rotated", func() bool { return len(rotated()) > 3 })
	rss := memory(n.hello().WorkerPID)
	n.killWorker()
	if e := n.exit("a"); e.Code != 0 {
		t.Errorf("exit %+v", e)
	}
	if after := memory(n.hello().WorkerPID); after > max(2*rss, 40<<10) && !raceEnabled {
		t.Errorf("the worker takes %d kB after the burst; another one took %d kB in it", after, rss)
	}
	last, gaps, files := 0, 0, rotated()
	for _, file := range append(files, req.LogPath) {
		if size := fileSize(t, file); size == 0 || size > limit {
			t.Errorf("%s has %d bytes, the limit is %d", file, size, limit)
		}
		for _, l := range readLog(t, file) {
			num, err := strconv.Atoi(l.text)
			if err == nil && num == last+1 {
				last = num
				continue
			}
			gaps++ // the first line after the gap may be the rest of one
			if err == nil && num > last {
				last = num
			}
		}
	}
	if last != lines || gaps > 3 {
		t.Errorf("the last line is %d, want %d; %d lines are out of order", last, lines, gaps)
	}
	t.Logf("%d files", len(files)+1)
}

// memory returns a process's resident memory in kB.
func memory(pid int) (kb int) {
	fmt.Sscan(status(pid, "VmRSS"), &kb)
	return kb
}

func TestLogRotationKeepsFiles(t *testing.T) {
	n := newNode(t)
	req := n.bundle("a", nil, "seq", "100000")
	req.LogMaxBytes, req.LogMaxFiles = 64<<10, 3
	n.run(req)
	files, _ := filepath.Glob(req.LogPath + "*")
	if lines := readLog(t, req.LogPath); len(files) != 3 || lines[len(lines)-1].text != "100000" {
		t.Errorf("files %q, the last line %+v", files, lines[len(lines)-1])
	}
	for name, change := range map[string]func(*protocol.CreateRequest){
		"one file": func(r *protocol.CreateRequest) { r.LogMaxFiles = 1 },
		"no size":  func(r *protocol.CreateRequest) { r.LogMaxBytes = 0 },
		"negative": func(r *protocol.CreateRequest) { r.LogMaxBytes = -1 },
		"no path":  func(r *protocol.CreateRequest) { r.LogPath = "" },
	} {
		bad := n.bundle("b", nil, "true")
		bad.LogMaxBytes, bad.LogMaxFiles = 64<<10, 3
		change(&bad)
		if _, err := n.c.Create(n.ctx(), bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
	}
}

// After a ReopenLog that has failed there is no new file, by a rotation or by the next worker either, until one succeeds.
func TestNoNewLogAfterReopenFailed(t *testing.T) {
	n := newNode(t)
	req := n.bundle("a", nil, "sh", "-c", "while read x; do seq $x; done")
	req.Stdin, req.LogMaxBytes, req.LogMaxFiles = true, 4<<10, 3
	req.LogPath = filepath.Join(n.dir, "logs", "0.log")
	dir := filepath.Dir(req.LogPath)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	n.start(req)
	n.send("a", "1\n")
	eventually(t, "the first line", func() bool { return len(readLog(t, req.LogPath)) == 1 })
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := n.c.ReopenLog(n.ctx(), "a"); err == nil {
		t.Error("ReopenLog without a directory succeeds")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	n.send("a", "1000\n")
	eventually(t, "the old file takes the lines", func() bool { // a reader may meet the writer in the middle of one
		raw, err := os.ReadFile(filepath.Join(dir+".away", "0.log"))
		return err == nil && bytes.Count(raw, []byte{'\n'}) == 1001
	})
	n.killWorker()
	n.send("a", "10\n")
	for _, id := range []string{dir, dir + ".away"} {
		entries, err := os.ReadDir(id)
		if want := strings.Count(id, ".away"); err != nil || len(entries) != want {
			t.Errorf("%s: %v %v, want %d files", id, entries, err, want)
		}
	}
	if err := n.c.ReopenLog(n.ctx(), "a"); err != nil {
		t.Error("ReopenLog: ", err)
	}
	n.send("a", "1000\n")
	eventually(t, "the new log is written and rotated", func() bool { files, _ := os.ReadDir(dir); return len(files) == 3 })
}

// A ReopenLog that fails while a Start is under way is not forgotten by it, nor does it make the next worker forget the Start.
func TestReopenLogFailsDuringStart(t *testing.T) {
	n := newNode(t)
	req := n.oci("a", nil, "sh", "-c", "while read x; do seq $x; done")
	runtime, gate := filepath.Join(n.dir, "slow"), filepath.Join(n.dir, "gate")
	script := "#!/bin/sh\ncase \" $* \" in *' start '*) echo > " + gate + ".begun; read x < " + gate + ";; esac\nexec " + req.Runtime.Path + " \"$@\"\n"
	if err := errors.Join(os.WriteFile(runtime, []byte(script), 0o755), unix.Mkfifo(gate, 0o600)); err != nil {
		t.Fatal(err)
	}
	req.Runtime.Path, req.Stdin = runtime, true
	req.LogPath = filepath.Join(n.dir, "logs", "0.log")
	dir := filepath.Dir(req.LogPath)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := n.c.Create(n.ctx(), req); err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() {
		_, err := n.c.Start(n.ctx(), "a")
		started <- err
	}()
	eventually(t, "the start is under way", func() bool { return readFile(gate+".begun") != "" })
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := n.c.ReopenLog(n.ctx(), "a"); err == nil {
		t.Error("ReopenLog without a directory succeeds")
	}
	if s, err := n.c.State(n.ctx(), "a"); err != nil || s.Phase != protocol.Created {
		t.Errorf("state %+v, %v; the program does not run yet", s, err)
	}
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(gate, []byte("go\n"), 0)); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	n.killWorker()
	if s, err := n.c.State(n.ctx(), "a"); err != nil || s.Phase != protocol.Running {
		t.Errorf("state %+v, %v; want it running", s, err)
	}
	n.send("a", "10\n")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v; there is a new log, after a ReopenLog that has failed", entries, err)
	}
}
