package errtext

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
)

func TestOf(t *testing.T) {
	gone := fmt.Errorf("container %q: %w", "c", errdefs.ErrNotFound)
	for want, err := range map[string]error{
		`container "c"`:                 gone,
		`remove it: container "c"`:      fmt.Errorf("remove it: %w", gone),
		"it is there: not found":        errors.New("it is there: not found"), // no class
		"its state: unknown":            errors.New("its state: unknown"),
		"look: context canceled":        fmt.Errorf("look: %w", context.Canceled),
		"not found":                     errdefs.ErrNotFound,
		"no route":                      fmt.Errorf("%w: %w", fmt.Errorf("no route: %w", errdefs.ErrUnavailable), errdefs.ErrUnavailable),
		"unavailable: it is not served": fmt.Errorf("%w: it is not served", errdefs.ErrUnavailable),
	} {
		if got := Of(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
