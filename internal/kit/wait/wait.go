// Package wait waits, for no longer than anybody wants to.
package wait

import (
	"context"
	"errors"
	"sync"
	"time"
)

// For waits for d, or for the end of ctx, whose cause it returns then. Where ctx has ended already it does not wait; a d of 0 or less is over at once.
func For(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// All runs the functions side by side, at least one, and returns when all have returned, with their errors.
func All(fs ...func() error) error {
	errs := make([]error, len(fs))
	var wg sync.WaitGroup
	for i, f := range fs[1:] {
		wg.Go(func() { errs[i+1] = f() })
	}
	errs[0] = fs[0]()
	wg.Wait()
	return errors.Join(errs...)
}
