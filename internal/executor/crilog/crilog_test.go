package crilog

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// open opens a log whose clock stands still.
func open(t *testing.T) (*File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	l, err := Open(path, Rotation{})
	if err != nil {
		t.Fatal(err)
	}
	l.now = func() time.Time { return time.Date(2024, 1, 2, 3, 4, 5, 6, time.FixedZone("x", 3600)) }
	t.Cleanup(func() { l.Close() })
	return l, path
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

const stamp = "2024-01-02T02:04:05.000000006Z "

func TestStream(t *testing.T) {
	long := strings.Repeat("y", MaxContent)
	for name, tc := range map[string]struct {
		writes []string
		want   string
	}{
		"lines":            {[]string{"a\nb\n"}, "stdout F a\nstdout F b\n"},
		"line in parts":    {[]string{"a", "b", "c\nd"}, "stdout F abc\nstdout P d\n"},
		"no newline":       {[]string{"a"}, "stdout P a\n"},
		"empty lines":      {[]string{"\n\n"}, "stdout F \nstdout F \n"},
		"nothing":          {[]string{""}, ""},
		"carriage return":  {[]string{"a\r\n"}, "stdout F a\r\n"},
		"not UTF-8":        {[]string{"\xff\x00\n"}, "stdout F \xff\x00\n"},
		"as long as can":   {[]string{long + "\n"}, "stdout F " + long + "\n"},
		"one byte longer":  {[]string{long + "z\n"}, "stdout P " + long + "\nstdout F z\n"},
		"long in parts":    {[]string{long[:100], long[100:], "z", "\n"}, "stdout P " + long + "\nstdout F z\n"},
		"long, no newline": {[]string{long + long + "z"}, "stdout P " + long + "\nstdout P " + long + "\nstdout P z\n"},
	} {
		l, path := open(t)
		s := l.Stream("stdout")
		for _, w := range tc.writes {
			if n, err := s.Write([]byte(w)); n != len(w) || err != nil {
				t.Errorf("%s: %d %v", name, n, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.ReplaceAll(read(t, path), stamp, ""); got != tc.want {
			t.Errorf("%s: %.200q, want %.200q", name, got, tc.want)
		}
	}
}

func TestStampOfLine(t *testing.T) {
	l, path := open(t)
	l.Stream("stderr").Write([]byte("x\n"))
	if got := read(t, path); got != stamp+"stderr F x\n" {
		t.Errorf("%q", got)
	}
}

func TestOpenAgainRemovesTornLine(t *testing.T) {
	whole := stamp + "stdout F x\n"
	for name, tc := range map[string]struct{ in, want string }{
		"whole":     {whole, whole},
		"torn":      {whole + stamp + "stdout F to", whole},
		"only torn": {stamp[:5], ""},
		"empty":     {"", ""},
		"long torn": {whole + strings.Repeat("x", MaxContent), whole},
		"not ours":  {strings.Repeat("x", 3*MaxContent), strings.Repeat("x", 3*MaxContent)},
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(tc.in), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := OpenAgain(path, Rotation{}, false)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if got := read(t, path); got != tc.want {
			t.Errorf("%s: %d bytes, want %d", name, len(got), len(tc.want))
		}
	}
}

func TestReopen(t *testing.T) {
	l, path := open(t)
	s := l.Stream("stdout")
	s.Write([]byte("1\nbegun "))
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	s.Write([]byte("before\n"))
	if got := read(t, path); got != stamp+"stdout F begun before\n" {
		t.Errorf("new file %q", got)
	}
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err == nil {
		t.Error("Reopen in a directory that is gone succeeds")
	}
	if _, err := s.Write([]byte("goes on in the old file\n")); err != nil {
		t.Error("after a Reopen that failed: ", err)
	}
}

// A full disk loses output, but the file stays well formed.
func TestFullDisk(t *testing.T) {
	l, path := open(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	there := l.f
	l.f = full
	s := l.Stream("stdout")
	if _, err := s.Write([]byte("x\n")); err == nil {
		t.Error("a write to a full disk succeeds")
	}
	if err := s.Close(); err != nil {
		t.Error("what was lost is tried again: ", err)
	}
	l.f = there
	if _, err := s.Write([]byte("y\n")); err != nil || read(t, path) != stamp+"stdout F y\n" {
		t.Errorf("with room again: %v, %q", err, read(t, path))
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte("a\nb"), 1)
	f.Add(bytes.Repeat([]byte("x"), MaxContent+1), 7)
	f.Add([]byte("\n\n\r\n"), 2)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		if size <= 0 {
			return
		}
		l, path := open(t)
		s := l.Stream("stdout")
		for rest := in; len(rest) > 0; {
			n := min(size, len(rest))
			s.Write(rest[:n])
			rest = rest[n:]
		}
		s.Close()
		// What was written comes out again when the log is read as CRI says.
		var out []byte
		for line := range strings.Lines(read(t, path)) {
			content, ok := strings.CutPrefix(line, stamp+"stdout ")
			if !ok || len(content) < 3 || len(content) > MaxContent+3 {
				t.Fatalf("malformed line %q", line)
			}
			out = append(out, content[2:len(content)-1]...)
			if content[0] == 'F' {
				out = append(out, '\n')
			}
		}
		if !bytes.Equal(out, in) {
			t.Fatalf("%q came out, want %q", out, in)
		}
	})
}
