package download

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/registry"
	"monopod.dev/monopod/internal/image/room"
)

func TestWhatIsTriedAgain(t *testing.T) {
	for err, want := range map[error]bool{
		io.ErrUnexpectedEOF:                            true,
		fmt.Errorf("%w: %w", ErrWrite, syscall.ENOSPC): false,
		fmt.Errorf("x: %w", ErrStale):                  false,
	} {
		if got := mayPass(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// source sends a layer; each entry of breaks is how many bytes come before the connection breaks.
type source struct {
	data   []byte
	breaks []int
	begins []int64 // where each attempt has begun to read
	pauses []int
}

type stream struct {
	*bytes.Reader
	of    *source
	left  int // bytes until it breaks; less than 0: it does not
	begun bool
}

func (s *source) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	left := -1
	if len(s.breaks) > 0 {
		left, s.breaks = s.breaks[0], s.breaks[1:]
	}
	return &stream{Reader: bytes.NewReader(s.data), of: s, left: left}, nil
}

func (s *source) Pause(_ context.Context, n int) error {
	s.pauses = append(s.pauses, n)
	return nil
}

func (s *stream) Read(p []byte) (int, error) {
	if !s.begun {
		s.begun = true
		s.of.begins = append(s.of.begins, int64(len(s.of.data)-s.Len()))
	}
	if s.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	if s.left > 0 && len(p) > s.left {
		p = p[:s.left]
	}
	n, err := s.Reader.Read(p)
	if s.left > 0 {
		s.left -= n
	}
	return n, err
}

func (*stream) Close() error { return nil }

// begin opens a download of size bytes into a file that holds what an earlier one has left.
func begin(t *testing.T, size int, left []byte) (*Layer, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "layer")
	if err := os.WriteFile(path, left, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(f, ocispec.Descriptor{Size: int64(size)}, room.Room{Dir: t.TempDir()}, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, path
}

// A download that breaks goes on where it broke, also in a later one, and its reader gets each byte once.
func TestGoesOn(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	from := &source{data: data, breaks: []int{100 << 10, 200 << 10}}
	l, path := begin(t, len(data), data[:7])
	if l.Have() != 7 {
		t.Errorf("%d bytes are there", l.Have())
	}
	read := make(chan []byte)
	go func() {
		got, err := io.ReadAll(l)
		if err != nil {
			t.Error(err)
		}
		read <- got
	}()
	if err := l.Fill(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	if got := <-read; !bytes.Equal(got, data) {
		t.Errorf("the reader got %d bytes, or others", len(got))
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the file has %d bytes, or others: %v", len(got), err)
	}
	if want := []int64{7, 7 + 100<<10, 7 + 300<<10}; !slices.Equal(from.begins, want) {
		t.Errorf("attempts began at %v, want %v", from.begins, want)
	}
	if want := []int{1, 1}; !slices.Equal(from.pauses, want) { // each has brought enough to be counted anew
		t.Errorf("the pauses were %v, want %v", from.pauses, want)
	}
}

// A registry that brings nothing is given up after a bounded number of attempts; and the reader is told.
func TestGivesUp(t *testing.T) {
	from := &source{data: []byte("0123456789"), breaks: slices.Repeat([]int{0}, 100)}
	l, _ := begin(t, 10, []byte("01"))
	err := l.Fill(t.Context(), from)
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "broke at byte 2 of 10") || len(from.pauses) != registry.MaxRetries {
		t.Errorf("after the pauses %v: %v", from.pauses, err)
	}
	if got, rerr := io.ReadAll(l); string(got) != "01" || !errors.Is(rerr, io.ErrUnexpectedEOF) {
		t.Errorf("the reader got %q, %v", got, rerr)
	}
}

// What an earlier download has left may not fit to what comes: then it is worth another one, from the first byte. A new one has no such excuse.
func TestWrongSize(t *testing.T) {
	for name, c := range map[string]struct {
		left  string
		stale bool
	}{"new": {"", false}, "gone on with": {"01", true}} {
		l, _ := begin(t, 10, []byte(c.left))
		if err := l.Fill(t.Context(), &source{data: []byte("012345")}); errors.Is(err, ErrStale) != c.stale || !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l, _ := begin(t, 3, []byte("longer than it may be")); l.Have() != 0 {
		t.Errorf("%d bytes of a file that was too long", l.Have())
	}
}
