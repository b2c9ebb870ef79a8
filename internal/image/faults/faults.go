// Package faults says of an error of a pull or a load whose fault it is, and gives it the class that callers decide by: the sender's, the disk's,
// or that of the bytes themselves. It makes errors fit to be shown.
package faults

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/kit/oneline"
)

// Source marks the errors of the reader that a layer or an archive comes from, so that they are told from those of bad bytes.
func Source(r io.Reader) io.Reader { return source{r} }

type source struct{ io.Reader }

// SourceError is an error of who sends the bytes, whatever it looks like.
type SourceError struct{ Err error }

func (e *SourceError) Error() string { return e.Err.Error() }
func (e *SourceError) Unwrap() error { return e.Err }

func (s source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = &SourceError{err}
	}
	return n, err
}

// OfSource says whether an error is one of who sends the bytes.
func OfSource(err error) bool {
	var passed *SourceError
	return errors.As(err, &passed)
}

// DiskFull says whether an error is the kernel's word for a disk, or a quota, without room.
func DiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// NoRoom gives an error of a full disk its class, ResourceExhausted.
func NoRoom(err error) error {
	if DiskFull(err) && !errdefs.IsResourceExhausted(err) {
		return fmt.Errorf("%w: %w", err, errdefs.ErrResourceExhausted)
	}
	return err
}

// Classify gives an error of the disk or of a connection, which has no class, its own.
func Classify(err error) error {
	if errdefs.Resolve(err) != errdefs.ErrUnknown {
		return err
	}
	if class := ClassOf(err); class != nil {
		return fmt.Errorf("%w: %w", err, class)
	}
	return err
}

// ClassOf is the class of an error of the disk or of a connection that has none; nil for all others.
func ClassOf(err error) error {
	var network net.Error
	switch {
	case DiskFull(err):
		return errdefs.ErrResourceExhausted
	case errors.As(err, &network), errors.Is(err, io.ErrUnexpectedEOF): // no answer, or half of one
		return errdefs.ErrUnavailable
	}
	return nil
}

// Legible makes an error fit for events, logs and gRPC: one line of a bounded length that is UTF-8, whatever a registry or an archive
// has put into it.
func Legible(err error) error {
	if err == nil {
		return nil
	}
	s := err.Error()
	if len(s) <= maxError && utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0 {
		return err
	}
	return &plainError{err}
}

const maxError = 2 << 10

type plainError struct{ err error }

func (e *plainError) Error() string {
	s := e.err.Error()
	if len(s) > maxError {
		s = s[:maxError*3/4] + " [...] " + s[len(s)-maxError/4:]
	}
	return oneline.Of(strings.ToValidUTF8(s, "?"))
}

func (e *plainError) Unwrap() error { return e.err }
