package nodeusage

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"monopod.dev/monopod/internal/kit/wait"
)

// Config says whom to ask, and how often. Times that are 0 have their usual values.
type Config struct {
	// Fetch asks the agent of a node for its resource metrics.
	Fetch func(ctx context.Context, node string) ([]byte, error)
	Log   *slog.Logger
	// Fresh is for how long an answer holds, Apart the time between two samples that are taken for one answer, Stale the age from which on a sample is not
	// compared with. Patience is how long one answer may take, Pause how long nobody waits for an agent that did not answer.
	Fresh, Apart, Stale, Patience, Pause time.Duration
}

// Apart is longer than an agent may keep what it has collected.
const (
	usualFresh    = 5 * time.Second
	usualApart    = 1500 * time.Millisecond
	usualStale    = 2 * time.Minute
	usualPatience = 5 * time.Second
	usualPause    = 10 * time.Second
)

// Sampler takes samples. It is safe for concurrent use. Close it.
type Sampler struct {
	cfg  Config
	base context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex // guards what follows
	nodes map[string]*node
}

// node is what is known of one.
type node struct {
	last *sample
	// answer holds until it is no longer fresh, err until the pause is over; at is when either came.
	answer  *Usage
	err     error
	at      time.Time
	failing bool // the log has it
	pending chan struct{}
}

// New makes a sampler; nobody is asked yet.
func New(cfg Config) *Sampler {
	for _, d := range []struct {
		of    *time.Duration
		usual time.Duration
	}{{&cfg.Fresh, usualFresh}, {&cfg.Apart, usualApart}, {&cfg.Stale, usualStale}, {&cfg.Patience, usualPatience}, {&cfg.Pause, usualPause}} {
		if *d.of == 0 {
			*d.of = d.usual
		}
	}
	s := &Sampler{cfg: cfg, nodes: map[string]*node{}}
	//nolint:forbidigo // samples are for all who ask, and taken until Close
	s.base, s.end = context.WithCancel(context.Background())
	return s
}

// Close ends what is under way.
func (s *Sampler) Close() {
	s.end()
	s.wg.Wait()
}

// Of is what a node uses. It takes a sample when there is none that holds, and waits for it at most as long as ctx and the sampler's patience allow.
func (s *Sampler) Of(ctx context.Context, name string) (*Usage, error) {
	s.mu.Lock()
	n := s.nodes[name]
	if n == nil {
		s.forget()
		n = &node{}
		s.nodes[name] = n
	}
	age := time.Since(n.at)
	if n.pending == nil && (n.err == nil && n.answer != nil && age < s.cfg.Fresh || n.err != nil && age < s.cfg.Pause) {
		defer s.mu.Unlock()
		return n.answer, n.err
	}
	if n.pending == nil {
		n.pending = make(chan struct{})
		s.wg.Go(func() { s.refresh(name, n) })
	}
	pending := n.pending
	s.mu.Unlock()
	select {
	case <-pending:
		s.mu.Lock()
		defer s.mu.Unlock()
		return n.answer, n.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// forget drops nodes that nobody has asked for in a while; they may be gone. s.mu is held.
func (s *Sampler) forget() {
	for name, n := range s.nodes {
		if n.pending == nil && time.Since(n.at) > 2*s.cfg.Stale {
			delete(s.nodes, name)
		}
	}
}

// refresh makes a new answer of a node.
func (s *Sampler) refresh(name string, n *node) {
	ctx, cancel := context.WithTimeout(s.base, s.cfg.Patience)
	defer cancel()
	s.mu.Lock()
	old := n.last
	s.mu.Unlock()
	old, now, err := s.two(ctx, name, old)
	s.mu.Lock()
	defer s.mu.Unlock()
	n.at, n.err = time.Now(), err
	if n.answer = nil; err == nil {
		n.last, n.answer = now, usage(*old, *now)
	}
	if failing := err != nil; failing != n.failing && s.base.Err() == nil {
		n.failing = failing
		if failing {
			s.cfg.Log.Warn("a node's agent does not tell what the node uses", "node", name, "error", err)
		}
	}
	close(n.pending)
	n.pending = nil
}

// two are samples to compare: a new one with the one before it, or with another new one.
func (s *Sampler) two(ctx context.Context, name string, before *sample) (old, now *sample, err error) {
	if now, err = s.one(ctx, name); err != nil {
		return nil, nil, err
	}
	if before != nil {
		if apart := now.taken.Sub(before.taken); apart >= s.cfg.Apart && apart < s.cfg.Stale {
			return before, now, nil
		}
	}
	if err := wait.For(ctx, s.cfg.Apart); err != nil {
		return nil, nil, err
	}
	old = now
	now, err = s.one(ctx, name)
	return old, now, err
}

func (s *Sampler) one(ctx context.Context, name string) (*sample, error) {
	taken := time.Now()
	text, err := s.cfg.Fetch(ctx, name)
	if err != nil {
		return nil, err
	}
	one, err := parse(text, taken)
	if err != nil {
		return nil, fmt.Errorf("agent of node %s: %w", name, err)
	}
	return &one, nil
}
