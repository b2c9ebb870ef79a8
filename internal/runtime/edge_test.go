package runtime

import (
	"context"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestToStatus: a class is a code, and not said in words beside it.
func TestToStatus(t *testing.T) {
	for want, err := range map[string]error{
		"Unavailable: no route":                                            fmt.Errorf("%w: %w", fmt.Errorf("no route: %w", errdefs.ErrUnavailable), errdefs.ErrUnavailable),
		"NotFound: container c":                                            fmt.Errorf("container c: %w", errdefs.ErrNotFound),
		"Unimplemented: field f":                                           fmt.Errorf("field f: %w", errdefs.ErrNotImplemented),
		"ResourceExhausted: write f: " + unix.ENOSPC.Error():               fmt.Errorf("write f: %w", unix.ENOSPC),
		"Canceled: pull: context canceled":                                 fmt.Errorf("pull: %w", context.Canceled),
		"Unknown: it is broken":                                            fmt.Errorf("it is broken"),
		"DeadlineExceeded: stop: " + context.DeadlineExceeded.Error():      fmt.Errorf("stop: %w", context.DeadlineExceeded),
		"Unimplemented: " + Name + ": M is not implemented by Monopod yet": status.Error(codes.Unimplemented, "method M not implemented"),
	} {
		s := status.Convert(toStatus(err, "/s/M"))
		if got := s.Code().String() + ": " + s.Message(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
