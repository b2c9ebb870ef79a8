package node

import (
	"context"
	"errors"
	"fmt"
)

// stages runs the roles side by side and stops them one after another, the last started first. The first that ends by
// itself, with or without an error, stops all.
type stages struct {
	ctx     context.Context
	started []*stage
	ended   chan *stage
}

type stage struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func newStages(ctx context.Context) *stages { return &stages{ctx: ctx, ended: make(chan *stage, 16)} }

// run starts f. Its context ends when the stages that were started after it have ended.
func (s *stages) run(name string, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	st := &stage{name: name, cancel: cancel, done: make(chan struct{})}
	s.started = append(s.started, st)
	go func() {
		defer close(st.done)
		if err := f(ctx); err != nil && !errors.Is(err, context.Canceled) {
			st.err = fmt.Errorf("%s: %w", name, err)
		}
		s.ended <- st
	}()
}

// wait returns when all have ended, with the errors of all.
func (s *stages) wait() error {
	select {
	case <-s.ctx.Done():
	case st := <-s.ended:
		if st.err == nil && s.ctx.Err() == nil {
			st.err = fmt.Errorf("%s ended unexpectedly", st.name)
		}
	}
	var errs []error
	for i := len(s.started) - 1; i >= 0; i-- {
		st := s.started[i]
		st.cancel()
		<-st.done
		errs = append(errs, st.err)
	}
	return errors.Join(errs...)
}
