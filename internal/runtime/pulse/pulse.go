// Package pulse knows whether somebody answers, without making anybody wait for long.
//
// One question at a time is under way, for a bounded time, and only after somebody has asked. Every answer, and its absence, is
// the verdict until the next.
package pulse

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

// Config says whom to ask, and how long to wait.
type Config struct {
	// Ask asks. It ends with its context.
	Ask func(context.Context) error
	// Fresh is how long an answer is good without another question; 0: every Check asks, or waits for what was asked before.
	Fresh time.Duration
	// Wait is how long Check waits for an answer when there has been one before.
	Wait time.Duration
	// Silence is how long a question may go unanswered before the verdict is that nobody answers, and how long Check waits for the first
	// answer of all; Limit is when the question ends. Then the next Check asks again.
	Silence, Limit time.Duration
}

// Pulse is safe for concurrent use.
type Pulse struct {
	cfg Config

	mu    sync.Mutex
	at    time.Time // of the last answer; zero: none yet
	err   error     // what it was
	asked *question // under way
}

type question struct {
	since time.Time
	done  chan struct{}
}

// New returns a Pulse that has not asked yet.
func New(cfg Config) *Pulse { return &Pulse{cfg: cfg} }

// Check is nil when somebody answers, as far as is known. It asks, unless the last answer is fresh, and waits for the answer for
// a short time only; after that the last verdict counts, until the silence is too long. While there is no verdict yet, it waits as
// long as a silence may be: a busy machine must not make somebody seem gone who was never asked before.
func (p *Pulse) Check(ctx context.Context) error {
	p.mu.Lock()
	if !p.at.IsZero() && time.Since(p.at) < p.cfg.Fresh {
		defer p.mu.Unlock()
		return p.err
	}
	q := p.asked
	if q == nil {
		q = p.ask(ctx)
	}
	patience := p.cfg.Wait
	if p.at.IsZero() {
		patience = p.cfg.Silence - time.Since(q.since)
	}
	p.mu.Unlock()
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-q.done:
	case <-wait.C:
	case <-ctx.Done():
	}
	return p.verdict()
}

// ask begins a question. It is not the caller's: the answer counts for those who come later, too.
func (p *Pulse) ask(ctx context.Context) *question {
	q := &question{since: time.Now(), done: make(chan struct{})}
	p.asked = q
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.Limit)
	go func() {
		defer cancel()
		err := p.cfg.Ask(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = silence(p.cfg.Limit)
		}
		p.mu.Lock()
		p.at, p.err, p.asked = time.Now(), err, nil
		p.mu.Unlock()
		close(q.done)
	}()
	return q
}

func (p *Pulse) verdict() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.asked; q != nil && (p.at.IsZero() || time.Since(q.since) >= p.cfg.Silence) {
		return silence(time.Since(q.since))
	}
	return p.err
}

func silence(d time.Duration) error {
	return fmt.Errorf("no answer for %s: %w", d.Round(time.Millisecond), errdefs.ErrUnavailable)
}
