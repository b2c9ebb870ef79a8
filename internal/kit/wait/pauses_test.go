package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Pauses grow up to the longest, which is none that they begin anew after, and do so after a try that has lasted.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Pauses{Least: time.Second, Most: 5 * time.Second}
		expect := func(want time.Duration) {
			t.Helper()
			start := time.Now()
			if err := p.For(t.Context()); err != nil || time.Since(start) != want {
				t.Errorf("%v after %v, want %v", err, time.Since(start), want)
			}
		}
		lasts := func(d time.Duration) { // a try
			if err := For(t.Context(), d); err != nil {
				t.Error(err)
			}
		}
		for _, want := range []time.Duration{1, 2, 4, 5, 5, 5} {
			expect(want * time.Second)
			lasts(time.Millisecond)
		}
		lasts(4 * time.Second)
		expect(5 * time.Second)
		lasts(6 * time.Second)
		expect(time.Second)
		expect(2 * time.Second)
	})
}

// The end of a context is the end of a pause.
func TestPausesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("no longer wanted")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(cause) })
		start := time.Now()
		if err := (&Pauses{Least: time.Hour, Most: time.Hour}).For(ctx); !errors.Is(err, cause) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
