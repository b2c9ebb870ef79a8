package faults

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"unicode"
	"unicode/utf8"

	"github.com/containerd/errdefs"
)

func TestLegible(t *testing.T) {
	long := errdefs.ErrInvalidArgument.WithMessage(strings.Repeat("é", 5000) + "\n\x1b[2J\xff")
	got := Legible(long)
	if !errdefs.IsInvalidArgument(got) || !utf8.ValidString(got.Error()) || len(got.Error()) > maxError+100 || strings.IndexFunc(got.Error(), unicode.IsControl) >= 0 {
		t.Errorf("%q", got)
	}
	if err := Legible(context.Canceled); err != context.Canceled {
		t.Errorf("%v", err)
	}
}

// An error gets a class once, and keeps the one that it has.
func TestClasses(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		class func(error) bool
	}{
		"a full disk":          {&os.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC}, errdefs.IsResourceExhausted},
		"a full quota":         {fmt.Errorf("x: %w", syscall.EDQUOT), errdefs.IsResourceExhausted},
		"half an answer":       {fmt.Errorf("x: %w", io.ErrUnexpectedEOF), errdefs.IsUnavailable},
		"a time-out":           {os.ErrDeadlineExceeded, errdefs.IsUnavailable},
		"one that has a class": {fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, errdefs.ErrInvalidArgument), errdefs.IsInvalidArgument},
	} {
		if got := Classify(c.err); !c.class(got) || !strings.HasPrefix(got.Error(), c.err.Error()) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if err := NoRoom(io.ErrUnexpectedEOF); err != io.ErrUnexpectedEOF {
		t.Errorf("no full disk: %v", err)
	}
	if err := NoRoom(syscall.ENOSPC); !errdefs.IsResourceExhausted(err) {
		t.Errorf("a full disk: %v", err)
	}
}

// What a marked reader says is known as its own, but that it has come to its end.
func TestSource(t *testing.T) {
	if _, err := io.ReadAll(Source(strings.NewReader("x"))); err != nil {
		t.Error(err)
	}
	_, err := io.ReadAll(Source(iotest.ErrReader(io.ErrUnexpectedEOF)))
	if err = fmt.Errorf("reading: %w", err); !OfSource(err) || OfSource(io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
}
