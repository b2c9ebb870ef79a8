// Package rollback undoes the steps of an operation that did not come to its end.
//
// A Stack collects one undo a step. Run, deferred at the begin, runs all of them, the latest first, unless Release was called
// at the success. Every undo runs, whatever the others return, on a context of its own: the caller's may be what ended the
// operation.
package rollback

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Stack is the undos of one operation. Its zero value is empty and usable. It is not safe for concurrent use.
type Stack struct {
	// Bound is the time that all undos of the operation have together. 0: Run ends only when they have, and each of them has to bound
	// what it waits for itself.
	Bound time.Duration
	steps []step
}

type step struct {
	what string
	undo func(context.Context) error
}

// Add says how to undo a step that is about to be done, or has been.
func (s *Stack) Add(what string, undo func(context.Context) error) {
	s.steps = append(s.steps, step{what, undo})
}

// Release forgets all undos: the operation has succeeded.
func (s *Stack) Release() { s.steps = nil }

// Run undoes what has not been released, and returns the faults of all undos.
func (s *Stack) Run(ctx context.Context) error {
	if len(s.steps) == 0 {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	if s.Bound > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Bound)
		defer cancel()
	}
	var errs []error
	for i := len(s.steps) - 1; i >= 0; i-- {
		if err := s.steps[i].undo(ctx); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", s.steps[i].what, err))
		}
	}
	s.steps = nil
	return errors.Join(errs...)
}
