package crilog

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// line is a line of 10 bytes as it is in the log, so that limits can be counted in lines.
const logged = int64(len(stamp) + len("stdout F 123456789\n"))

func rotating(t *testing.T, limit int64, files int) (*File, *Stream, string) {
	t.Helper()
	l, path := open(t)
	l.rotation = Rotation{MaxBytes: limit, MaxFiles: files, Failed: func(err error) { t.Error("rotation: ", err) }}
	return l, l.Stream("stdout"), path
}

func writeLines(t *testing.T, s *Stream, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := fmt.Fprintf(s, "%09d\n", i); err != nil {
			t.Fatal(err)
		}
	}
}

// contents returns the contents of the lines of all files, the oldest first, and the number of files.
func contents(t *testing.T, path string) (text []string, files int) {
	t.Helper()
	old := rotatedOf(t, path)
	for _, f := range append(old, path) {
		for line := range strings.Lines(read(t, f)) {
			_, content, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " stdout F ")
			if !ok || !strings.HasSuffix(line, "\n") {
				t.Fatalf("%s: torn line %q", f, line)
			}
			text = append(text, content)
		}
	}
	return text, len(old) + 1
}

// rotatedOf returns the paths of the files that were rotated away, the oldest first.
func rotatedOf(t *testing.T, path string) []string {
	t.Helper()
	dir, base, err := openFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	old, err := rotated(dir, base)
	if err != nil {
		t.Fatal(err)
	}
	for i := range old {
		old[i] = filepath.Join(filepath.Dir(path), old[i])
	}
	return old
}

func numbers(from, to int) (text []string) {
	for i := from; i < to; i++ {
		text = append(text, fmt.Sprintf("%09d", i))
	}
	return text
}

func TestRotationAtTheByte(t *testing.T) {
	for extra, perFile := range map[int64]int{0: 3, -1: 2, 1: 3} {
		l, s, path := rotating(t, 3*logged+extra, 100)
		writeLines(t, s, 0, 2*perFile)
		got, files := contents(t, path)
		if !slices.Equal(got, numbers(0, 2*perFile)) || files != 2 {
			t.Errorf("limit of 3 lines %+d bytes: %d files with %q", extra, files, got)
		}
		if size := int64(len(read(t, path))); size != int64(perFile)*logged || size > l.rotation.MaxBytes {
			t.Errorf("limit of 3 lines %+d bytes: %d bytes, want %d lines", extra, size, perFile)
		}
	}
}

// All lines of one write go to where they belong, and the parts of a long line too.
func TestRotationInsideOneWrite(t *testing.T) {
	_, s, path := rotating(t, 2*logged, 100)
	text := strings.Join(numbers(0, 7), "\n") + "\nrest\n"
	if n, err := s.Write([]byte(text)); n != len(text) || err != nil {
		t.Errorf("%d %v", n, err)
	}
	s.Close()
	got, files := contents(t, path)
	if !slices.Equal(got, append(numbers(0, 7), "rest")) || files != 4 {
		t.Errorf("%d files with %q", files, got)
	}
	_, s, path = rotating(t, 2*logged, 100)
	writeLines(t, s, 0, 1)
	s.Write(bytes.Repeat([]byte("x"), 2*MaxContent)) // too large for a file: two parts, a file each
	s.Close()
	old := rotatedOf(t, path)
	if len(old) != 2 || len(read(t, old[1])) != len(stamp)+len("stdout P \n")+MaxContent || len(read(t, path)) != len(stamp)+len("stdout F \n")+MaxContent {
		t.Errorf("a long line: rotated files %q", old)
	}
}

func TestRotationKeepsFiles(t *testing.T) {
	l, s, path := rotating(t, 2*logged, 3)
	kubelets := path + ".20200102-030405.gz"
	others := []string{path + ".1", path + ".x", path + "2.20200102-030405", path + ".20200102-030405.tmp"}
	for _, f := range append(others, kubelets) {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeLines(t, s, 0, 10)
	got, files := contents(t, path)
	if !slices.Equal(got, numbers(4, 10)) || files != 3 {
		t.Errorf("%d files with %q, want 3 with the last 6 lines", files, got)
	}
	if _, err := os.Stat(kubelets); err == nil {
		t.Error("a compressed file does not count as one of the files")
	}
	for _, f := range others {
		if _, err := os.Stat(f); err != nil {
			t.Errorf("%s is no rotated log of ours: %v", f, err)
		}
	}
	now := l.now().Local()
	want := []string{path + "." + now.Add(2*time.Second).Format(stampLayout), path + "." + now.Add(3*time.Second).Format(stampLayout)}
	if old := rotatedOf(t, path); !slices.Equal(old, want) { // four rotations in one second
		t.Errorf("names %q, want %q", old, want)
	}
}

func TestNextStamp(t *testing.T) {
	now := time.Date(2024, 5, 6, 7, 8, 59, 5, time.Local)
	for _, tc := range []struct {
		old  []string
		want string
	}{
		{nil, "20240506-070859"},
		{[]string{"x.20240506-070858"}, "20240506-070859"},
		{[]string{"x.20240506-070859"}, "20240506-070900"},
		{[]string{"x.20240506-070859.gz"}, "20240506-070900"},
		{[]string{"x.20231231-235959", "x.20251231-235959"}, "20260101-000000"}, // the clock was set back
	} {
		if got := nextStamp(now, tc.old); got != tc.want {
			t.Errorf("after %q: %s, want %s", tc.old, got, tc.want)
		}
	}
}

// A rotation that cannot be does not lose anything, is told of, and is tried again.
func TestRotationFails(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "nr_inodes=2"); err != nil { // its root, and one file
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	failures := 0
	path := filepath.Join(dir, "log")
	l, err := Open(path, Rotation{MaxBytes: 8 * logged, MaxFiles: 3, Failed: func(error) { failures++ }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.now = func() time.Time { return time.Date(2024, 1, 2, 2, 4, 5, 6, time.UTC) }
	s := l.Stream("stdout")
	writeLines(t, s, 0, 12)
	if failures != 4 {
		t.Errorf("told %d times of 4 lines too many, each an eighth of the limit", failures)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "nr_inodes=20"); err != nil {
		t.Fatal(err)
	}
	writeLines(t, s, 12, 14)
	if got, files := contents(t, path); !slices.Equal(got, numbers(0, 14)) || files != 2 || failures != 4 {
		t.Errorf("%d files with %q, %d failures", files, got, failures)
	}
}

// The file was moved away by somebody: the log goes on at its path.
func TestRotationOfMovedFile(t *testing.T) {
	_, s, path := rotating(t, 2*logged, 3)
	writeLines(t, s, 0, 2)
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	writeLines(t, s, 2, 4)
	if got, files := contents(t, path); !slices.Equal(got, numbers(2, 4)) || files != 1 {
		t.Errorf("%d files with %q", files, got)
	}
}

// A file that somebody has truncated has room again.
func TestRotationOfTruncatedFile(t *testing.T) {
	_, s, path := rotating(t, 2*logged, 3)
	writeLines(t, s, 0, 2)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	writeLines(t, s, 2, 4)
	if got, files := contents(t, path); !slices.Equal(got, numbers(2, 4)) || files != 1 {
		t.Errorf("%d files with %q", files, got)
	}
}

// On file systems that cannot exchange two files it takes two steps.
func TestExchangeInSteps(t *testing.T) {
	l, s, path := rotating(t, 100*logged, 3)
	writeLines(t, s, 0, 2)
	name := path + ".20240101-000000"
	next, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.exchangeInSteps(name, next)
	if err != nil {
		t.Fatal(err)
	}
	l.f.Close()
	l.f = f
	writeLines(t, s, 2, 3)
	if got, files := contents(t, path); !slices.Equal(got, numbers(0, 3)) || files != 2 {
		t.Errorf("%d files with %q", files, got)
	}
}

// The writer was killed: between the two halves of a rotation, and in the middle of a line.
func TestOpenAgainAfterRotation(t *testing.T) {
	l, s, path := rotating(t, 4*logged, 3)
	writeLines(t, s, 0, 6)
	old := rotatedOf(t, path)
	half := path + "." + nextStamp(l.now(), old)
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.f.WriteString(stamp + "stdout F torn"); err != nil {
		t.Fatal(err)
	}
	l.f.Close()
	again, err := OpenAgain(path, l.rotation, false)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := os.Stat(half); err == nil {
		t.Error("what a rotation cut short has left is still there")
	}
	again.now = l.now
	writeLines(t, again.Stream("stdout"), 6, 9)
	if got, files := contents(t, path); !slices.Equal(got, numbers(0, 9)) || files != 3 {
		t.Errorf("%d files with %q, want 3", files, got)
	}
}

// After a Reopen has failed nobody makes a new file but another Reopen.
func TestNoNewFileAfterReopenFailed(t *testing.T) {
	l, s, path := rotating(t, 2*logged, 3)
	writeLines(t, s, 0, 1)
	dir := filepath.Dir(path)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err == nil {
		t.Fatal("Reopen without a directory succeeds")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	writeLines(t, s, 1, 5) // into the old file, beyond its limit
	lost, err := OpenAgain(path, l.rotation, true)
	if err == nil {
		t.Error("a log was opened again that may make no file, and has none")
	}
	if _, err := lost.Stream("stdout").Write([]byte("x\n")); err == nil {
		t.Error("a log without a file takes lines")
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("new files: %v", entries)
	}
	if err := lost.Reopen(); err != nil {
		t.Fatal(err)
	}
	defer lost.Close()
	lost.now = l.now
	writeLines(t, lost.Stream("stdout"), 5, 8)
	if got, files := contents(t, path); !slices.Equal(got, numbers(5, 8)) || files != 2 {
		t.Errorf("after a Reopen: %d files with %q", files, got)
	}
	if got, files := contents(t, filepath.Join(dir+".away", filepath.Base(path))); !slices.Equal(got, numbers(0, 5)) || files != 1 {
		t.Errorf("the old file: %d files with %q", files, got)
	}
}

// A burst through a small limit loses nothing, and takes no memory.
func TestRotationOfBurst(t *testing.T) {
	const total, limit = 200 << 20, 1 << 20
	_, s, path := rotating(t, limit, 1000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	buf := make([]byte, 0, 16<<10)
	lines := 0
	for written := 0; written < total; {
		buf = buf[:0]
		for len(buf) < cap(buf)-10 {
			for digit := 100_000_000; digit > 0; digit /= 10 { // fmt would allocate more than what is measured
				buf = append(buf, byte('0'+lines/digit%10))
			}
			buf = append(buf, '\n')
			lines++
		}
		if _, err := s.Write(buf); err != nil {
			t.Fatal(err)
		}
		written += len(buf) / 10 * int(logged)
	}
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	// What is allocated at all, and not by how much the heap has grown, which depends on when the collector had its turn. Nearly all of it is
	// the list of the files, for each of 200 rotations.
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 24<<20 {
		t.Errorf("%d kB were allocated for %d MB of log", allocated>>10, total>>20)
	}
	old := rotatedOf(t, path)
	next := 0
	for _, name := range append(old, path) {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		st, _ := f.Stat()
		if st.Size() > limit || name != path && st.Size() <= limit-logged {
			t.Errorf("%s has %d bytes, the limit is %d", name, st.Size(), limit)
		}
		for sc := bufio.NewScanner(f); sc.Scan(); next++ {
			if want := fmt.Appendf(nil, "stdout F %09d", next); !bytes.HasSuffix(sc.Bytes(), want) {
				t.Fatalf("%s: %q, want %q", name, sc.Text(), want)
			}
		}
		f.Close()
	}
	if next != lines {
		t.Errorf("%d lines of %d", next, lines)
	}
	t.Logf("%d MB through %d files in %s", total>>20, len(old)+1, took.Round(time.Millisecond))
}
