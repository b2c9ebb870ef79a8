package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := For(t.Context(), time.Hour); err != nil || time.Since(start) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		cause := errors.New("no longer wanted")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(cause) })
		start = time.Now()
		if err := For(ctx, time.Hour); !errors.Is(err, cause) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := For(ctx, 0); !errors.Is(err, cause) {
			t.Errorf("%v for a context that has ended", err)
		}
		if err := For(t.Context(), -time.Second); err != nil {
			t.Error(err)
		}
	})
}

// All waits for the slowest, and tells all faults.
func TestAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := errors.New("one"), errors.New("two")
		start := time.Now()
		err := All(
			func() error { return For(t.Context(), time.Second) },
			func() error { return one },
			func() error { return errors.Join(For(t.Context(), time.Minute), two) },
		)
		if !errors.Is(err, one) || !errors.Is(err, two) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
