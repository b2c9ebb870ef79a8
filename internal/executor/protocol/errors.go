package protocol

import (
	"context"
	"errors"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Error is an error as it travels: its class (of github.com/containerd/errdefs) and its message. On the receiving side
// errors.Is finds the class.
type Error struct {
	Class   string `json:"class"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the class's error, so that errors.Is(err, errdefs.ErrNotFound) holds.
func (e *Error) Unwrap() error {
	for _, c := range classes {
		if c.name == e.Class {
			return c.err
		}
	}
	return errdefs.ErrUnknown
}

// classes are the classes that travel. The first that fits is sent.
var classes = [...]struct {
	name string
	err  error
}{
	{"NotFound", errdefs.ErrNotFound},
	{"AlreadyExists", errdefs.ErrAlreadyExists},
	{"FailedPrecondition", errdefs.ErrFailedPrecondition},
	{"InvalidArgument", errdefs.ErrInvalidArgument},
	{"Unavailable", errdefs.ErrUnavailable},
	{"NotImplemented", errdefs.ErrNotImplemented},
	{"ResourceExhausted", errdefs.ErrResourceExhausted},
	{"PermissionDenied", errdefs.ErrPermissionDenied},
	{"Canceled", context.Canceled},
	{"DeadlineExceeded", context.DeadlineExceeded},
}

// toError returns err in the form in which it travels.
func toError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return &Error{Class: e.Class, Message: err.Error()}
	}
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return &Error{Class: c.name, Message: err.Error()}
		}
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) { // a full disk
		return &Error{Class: "ResourceExhausted", Message: err.Error()}
	}
	return &Error{Class: "Unknown", Message: err.Error()}
}
