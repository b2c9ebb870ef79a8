package podlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const logLines = `2026-01-01T00:00:01Z stdout F one
2026-01-01T00:00:02Z stderr F two
2026-01-01T00:00:03Z stdout P thr
2026-01-01T00:00:03.5Z stdout F ee
2026-01-01T00:00:04Z stdout F
2026-01-01T00:00:05Z stdout F five
`

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func num(n int64) *int64 { return &n }

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestRead(t *testing.T) {
	cases := []struct {
		name, log string
		opts      Options
		want      string
	}{
		{"all", logLines, Options{}, "one\ntwo\nthree\n\nfive\n"},
		{"nothing", "", Options{}, ""},
		{"with times, one a line", logLines, Options{Timestamps: true}, "2026-01-01T00:00:01Z one\n2026-01-01T00:00:02Z two\n" +
			"2026-01-01T00:00:03Z three\n2026-01-01T00:00:04Z \n2026-01-01T00:00:05Z five\n"},
		{"the last line", logLines, Options{Tail: num(1)}, "five\n"},
		{"a long line is one", logLines, Options{Tail: num(3)}, "three\n\nfive\n"},
		{"no line", logLines, Options{Tail: num(0)}, ""},
		{"more lines than there are", logLines, Options{Tail: num(100)}, "one\ntwo\nthree\n\nfive\n"},
		{"since", logLines, Options{Since: at("2026-01-01T00:00:03Z")}, "three\n\nfive\n"},
		{"since the middle of a line", logLines, Options{Since: at("2026-01-01T00:00:03.2Z")}, "\nfive\n"},
		{"since and tail", logLines, Options{Since: at("2026-01-01T00:00:02Z"), Tail: num(2)}, "\nfive\n"},
		{"so many bytes", logLines, Options{Limit: num(6)}, "one\ntw"},
		{"exactly all bytes", logLines, Options{Limit: num(20)}, "one\ntwo\nthree\n\nfive\n"},
		{"one stream", logLines, Options{Stream: "stderr"}, "two\n"},
		{"a last line that is cut", logLines + "2026-01-01T00:00:06Z stdout P si", Options{}, "one\ntwo\nthree\n\nfive\nsi"},
		{"of which a tail", logLines + "2026-01-01T00:00:06Z stdout P si", Options{Tail: num(2)}, "five\nsi"},
		{"streams mixed within lines", "2026-01-01T00:00:01Z stdout P a\n2026-01-01T00:00:01Z stderr P b\n2026-01-01T00:00:02Z stdout F A\n2026-01-01T00:00:02Z stderr F B\n",
			Options{Stream: "stdout"}, "aA\n"},
		{"what is no record is passed on", "hello\n2026-01-01T00:00:01Z stdout F one\nx y z\n", Options{Timestamps: true}, "hello\n2026-01-01T00:00:01Z one\nx y z\n"},
		{"further tags", "2026-01-01T00:00:01Z stdout P:x:y on\n2026-01-01T00:00:01Z stdout F:x e\n", Options{}, "one\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := Read(t.Context(), file(t, c.log), c.opts, &out); err != nil {
				t.Fatal(err)
			}
			if out.String() != c.want {
				t.Errorf("got  %q\nwant %q", out.String(), c.want)
			}
		})
	}
}

func TestReadMissing(t *testing.T) {
	err := Read(t.Context(), filepath.Join(t.TempDir(), "none"), Options{}, io.Discard)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestTailBlocks: the search for lines from the end crosses its blocks anywhere.
func TestTailBlocks(t *testing.T) {
	var log strings.Builder
	const lines = 500
	for i := range lines {
		// Lines of very different lengths, some longer than a block.
		fmt.Fprintf(&log, "2026-01-01T00:00:01Z stdout F %d %s\n", i, strings.Repeat("x", (i*i*37)%(block+100)))
	}
	path := file(t, log.String())
	for _, n := range []int64{1, 2, 17, 499, 500, 501} {
		var out bytes.Buffer
		if err := Read(t.Context(), path, Options{Tail: num(n)}, &out); err != nil {
			t.Fatal(err)
		}
		want := min(n, lines)
		if got := int64(bytes.Count(out.Bytes(), []byte("\n"))); got != want {
			t.Errorf("tail of %d: %d lines", n, got)
		}
		if first := fmt.Sprintf("%d ", lines-want); !strings.HasPrefix(out.String(), first) {
			t.Errorf("tail of %d begins with %.10q", n, out.String())
		}
	}
}

// follower reads a log that grows.
type follower struct {
	*testing.T
	path  string
	out   *io.PipeReader
	ended chan struct{}
	err   chan error
}

func follow(t *testing.T, opts Options) *follower {
	f := &follower{T: t, path: file(t, ""), ended: make(chan struct{}), err: make(chan error, 1)}
	r, w := io.Pipe()
	f.out = r
	opts.Follow, opts.Ended = true, f.ended
	go func() {
		err := Read(t.Context(), f.path, opts, w)
		w.CloseWithError(err)
		f.err <- err
	}()
	return f
}

func (f *follower) write(lines ...string) {
	f.Helper()
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	for _, l := range lines {
		if _, err := file.WriteString(l); err != nil {
			f.Fatal(err)
		}
	}
}

func (f *follower) expect(want string) {
	f.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(f.out, got); err != nil || string(got) != want {
		f.Fatalf("read %q, want %q: %v", got, want, err)
	}
}

func (f *follower) end() {
	f.Helper()
	close(f.ended)
	if rest, err := io.ReadAll(f.out); err != nil || len(rest) > 0 {
		f.Errorf("after the end: %q, %v", rest, err)
	}
	if err := <-f.err; err != nil {
		f.Error(err)
	}
}

func TestFollow(t *testing.T) {
	f := follow(t, Options{})
	f.write("2026-01-01T00:00:01Z stdout F one\n")
	f.expect("one\n")
	// A line is passed on when it is whole.
	f.write("2026-01-01T00:00:02Z std", "out F tw")
	f.write("o\n")
	f.expect("two\n")
	f.end()
}

func TestFollowRotation(t *testing.T) {
	f := follow(t, Options{})
	f.write("2026-01-01T00:00:01Z stdout F one\n")
	f.expect("one\n")
	for i, word := range []string{"two", "three", "four"} {
		old, err := os.OpenFile(f.path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(f.path, fmt.Sprintf("%s.%d", f.path, i)); err != nil {
			t.Fatal(err)
		}
		// The writer has the old file open until it is told, and a little longer: the new one is made first.
		if err := os.WriteFile(f.path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(old, "2026-01-01T00:00:02Z stdout F late %s\n", word); err != nil {
			t.Fatal(err)
		}
		old.Close()
		f.write("2026-01-01T00:00:03Z stdout F " + word + "\n")
		f.expect("late " + word + "\n" + word + "\n")
	}
	f.end()
}

func TestFollowToTheEnd(t *testing.T) {
	f := follow(t, Options{})
	f.write("2026-01-01T00:00:01Z stdout F one\n")
	f.expect("one\n")
	f.write("2026-01-01T00:00:02Z stdout F two\n")
	close(f.ended)
	f.expect("two\n")
	if err := <-f.err; err != nil {
		t.Error(err)
	}
}

func TestFollowLimit(t *testing.T) {
	f := follow(t, Options{Limit: num(5)})
	f.write("2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:01Z stdout F two\n")
	f.expect("one\nt")
	if err := <-f.err; err != nil {
		t.Error(err)
	}
}

func TestFollowCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Read(ctx, file(t, logLines), Options{Follow: true}, io.Discard) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// inotifies is how many inotify instances this process has.
func inotifies(t *testing.T) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.Contains(to, "inotify") {
			n++
		}
	}
	return n
}

// More clients follow logs than a user of the host has inotify instances: they take one.
func TestManyFollow(t *testing.T) {
	const many = 150
	before := inotifies(t)
	var changes Changes
	var all []*follower
	for range many {
		all = append(all, follow(t, Options{Changes: &changes}))
	}
	for round := range 3 {
		for i, f := range all {
			f.write(fmt.Sprintf("2026-01-01T00:00:01Z stdout F %d of %d\n", round, i))
		}
		for i, f := range all {
			f.expect(fmt.Sprintf("%d of %d\n", round, i))
		}
		if n := inotifies(t) - before; n != 1 {
			t.Errorf("%d logs are followed by %d inotify instances, want 1", len(all), n)
		}
		all[0].end() // the others go on
		all = all[1:]
	}
	for _, f := range all {
		f.end()
	}
	if n := inotifies(t) - before; n != 0 {
		t.Errorf("%d inotify instances are left when nobody follows", n)
	}
}

// Nothing is missed by one who follows the log that another one leaves.
func TestFollowTogether(t *testing.T) {
	var changes Changes
	one := follow(t, Options{Changes: &changes})
	for range 100 {
		other, err := changes.follow(one.path)
		if err != nil {
			t.Fatal(err)
		}
		one.write("2026-01-01T00:00:01Z stdout F line\n")
		one.expect("line\n")
		if err := other.wait(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		changes.leave(other)
	}
	one.end()
}

// What a watch fails for is told to all who follow, and the next one has another watch.
func TestFollowFails(t *testing.T) {
	var changes Changes
	path := file(t, "")
	f, err := changes.follow(path)
	if err != nil {
		t.Fatal(err)
	}
	changes.fail(changes.watcher, io.ErrUnexpectedEOF)
	if err := f.wait(t.Context(), nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	changes.leave(f)
	if f, err = changes.follow(path); err != nil {
		t.Fatal(err)
	}
	defer changes.leave(f)
	if err := os.WriteFile(path, []byte("more"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.wait(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestTail(t *testing.T) {
	long := strings.Repeat("2026-01-01T00:00:01Z stdout F "+strings.Repeat("y", 99)+"\n", 100)
	for _, c := range []struct {
		log          string
		lines, limit int64
		want         int
	}{{logLines, 80, 2048, 20}, {logLines, 1, 2048, 5}, {long, 80, 2048, 2048}, {long, 3, 2048, 300}, {long, 80, 100000, 8000}} {
		got, err := Tail(file(t, c.log), c.lines, c.limit)
		if err != nil || len(got) != c.want {
			t.Errorf("%d lines, %d bytes: %d bytes, %v; want %d", c.lines, c.limit, len(got), err, c.want)
		}
	}
}

// TestLinksAreNotRead: a container has put something else in the place of its log, or of the folder.
func TestLinksAreNotRead(t *testing.T) {
	for what, put := range map[string]func(top, secret string) error{
		"a link": func(top, secret string) error { return os.Symlink(secret, filepath.Join(top, "pod/c/0.log")) },
		"a device": func(top, _ string) error {
			return unix.Mknod(filepath.Join(top, "pod/c/0.log"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))
		},
		"a FIFO":   func(top, _ string) error { return unix.Mkfifo(filepath.Join(top, "pod/c/0.log"), 0o666) },
		"a folder": func(top, _ string) error { return os.Mkdir(filepath.Join(top, "pod/c/0.log"), 0o755) },
		"a link for the folder": func(top, secret string) error {
			return errors.Join(os.Remove(filepath.Join(top, "pod/c")), os.Symlink(filepath.Dir(secret), filepath.Join(top, "pod/c")))
		},
	} {
		top := t.TempDir()
		secret := filepath.Join(top, "secret/0.log")
		for _, dir := range []string{"pod/c", "secret"} {
			if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.WriteFile(secret, []byte("secret\n"), 0o600), put(top, secret)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(top, "pod/c/0.log")
		var out bytes.Buffer
		if err := Read(t.Context(), path, Options{}, &out); !errdefs.IsFailedPrecondition(err) || out.Len() > 0 {
			t.Errorf("%s: read %.100q, %v", what, out.String(), err)
		}
		if got, err := Tail(path, 10, 100); !errdefs.IsFailedPrecondition(err) || got != "" {
			t.Errorf("%s: the tail is %.100q, %v", what, got, err)
		}
	}
	top := t.TempDir() // what the administrator has linked is followed
	if err := errors.Join(os.MkdirAll(filepath.Join(top, "disk/pod/c"), 0o755), os.Symlink("disk", filepath.Join(top, "log")),
		os.WriteFile(filepath.Join(top, "disk/pod/c/0.log"), []byte(logLines), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got, err := Tail(filepath.Join(top, "log/pod/c/0.log"), 1, 100); err != nil || got == "" {
		t.Errorf("behind an administrator's link: %q, %v", got, err)
	}
}

// TestOutputWithoutNewline: what a container writes without a newline at its end comes out as it was written, as a termination message and
// by kubectl logs.
func TestOutputWithoutNewline(t *testing.T) {
	path := file(t, "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stdout P DONE\n")
	for lines, want := range map[int64]string{80: "one\nDONE", 1: "DONE"} {
		if got, err := Tail(path, lines, 2048); got != want || err != nil {
			t.Errorf("the last %d lines: %q, %v; want %q", lines, got, err, want)
		}
	}
	var out bytes.Buffer
	if err := Read(t.Context(), path, Options{}, &out); err != nil || out.String() != "one\nDONE" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// FuzzRead: whatever the file holds, reading ends, and a tail is the end of the whole.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{logLines, "", "\n", "\n\n\n", "x", "2026-01-01T00:00:01Z", "2026-01-01T00:00:01Z stdout", "2026-01-01T00:00:01Z stdout F",
		"2026-01-01T00:00:01Z stdout P\n", "2026-01-01T00:00:01Z other F x\n", "2026-01-01T00:00:01Z stdout Q x\n", "\x00\xff \n"} {
		f.Add([]byte(seed), int64(2), int64(10))
	}
	f.Fuzz(func(t *testing.T, log []byte, tail, limit int64) {
		path := filepath.Join(t.TempDir(), "0.log")
		if err := os.WriteFile(path, log, 0o600); err != nil {
			t.Fatal(err)
		}
		read := func(o Options) string {
			var out bytes.Buffer
			if err := Read(t.Context(), path, o, &out); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		all := read(Options{})
		if tail = tail & 0xff; !strings.HasSuffix(all, read(Options{Tail: &tail})) {
			t.Errorf("a tail of %d is not the end of %q", tail, all)
		}
		if limit = limit&0xff + 1; !strings.HasPrefix(all, read(Options{Limit: &limit})) || int64(len(read(Options{Limit: &limit}))) > limit {
			t.Errorf("%d bytes are not the start of %q", limit, all)
		}
		read(Options{Timestamps: true, Stream: "stdout"})
		if _, err := Tail(path, tail, limit); err != nil {
			t.Fatal(err)
		}
	})
}

// TestReadFrom: reading goes on where it has ended, in the same file alone.
func TestReadFrom(t *testing.T) {
	path := file(t, logLines+"2026-01-01T00:00:06Z stdout P si")
	var out bytes.Buffer
	read := func(opts Options) string {
		t.Helper()
		out.Reset()
		if err := Read(t.Context(), path, opts, &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	var end Position
	read(Options{Tail: num(1), End: &end})
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("x\n2026-01-01T00:00:07Z stdout F seven\n2026-01-01T00:00:08Z stderr F eight\n"); err != nil {
		t.Fatal(err)
	}
	if got := read(Options{From: &end}); got != "x\nseven\neight\n" {
		t.Errorf("the rest: %q", got)
	}
	if got := read(Options{From: &end, Stream: "stdout", End: &end}); got != "seven\n" {
		t.Errorf("the rest of one stream: %q", got)
	}
	if got := read(Options{From: &end}); got != "" {
		t.Errorf("after the end: %q", got)
	}
	if err := os.Rename(path, path+".20260101-000000"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(logLines), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Read(t.Context(), path, Options{From: &end}, &out); !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("in another file: %v", err)
	}
}
