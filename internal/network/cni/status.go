package cni

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

const (
	// statusFresh is how long an answer of the plugins to STATUS is good for.
	statusFresh = 3 * time.Second
	// statusPatience is how long Status waits for a newer one; it answers with the last one then.
	statusPatience = 200 * time.Millisecond
)

// notReadyError says why no sandbox can be connected. Its Reason is that of CRI's condition NetworkReady.
type notReadyError struct{ error }

// notReady makes a failure that is over when the host's configuration or its plugins are right.
func notReady(err error) error {
	return notReadyError{fmt.Errorf("%w: %w", err, errdefs.ErrUnavailable)}
}

// Reason is the one that kubelets know.
func (notReadyError) Reason() string { return "NetworkPluginNotReady" }

func (e notReadyError) Unwrap() error { return e.error }

// Status is nil when sandboxes can be connected: there is a valid configuration, its plugins are there, and they say so
// themselves (STATUS, from version 1.1.0 on). It does not wait for plugins longer than for a moment.
func (n *Network) Status(ctx context.Context) error {
	conf := n.refresh()
	if err := conf.err(); err != nil {
		return notReady(err)
	}
	finder := &executor{}
	var missing []error
	for _, p := range conf.list.Plugins {
		if _, err := finder.FindInPath(p.Network.Type, n.cfg.BinDirs); err != nil {
			missing = append(missing, err)
		}
	}
	if len(missing) > 0 {
		return notReady(fmt.Errorf("CNI network %q (%s): %w", conf.list.Name, conf.file, errors.Join(missing...)))
	}
	if !atLeast(conf.list, "1.1.0") {
		return nil
	}
	if err := n.status.get(ctx, n, conf); err != nil {
		return notReady(fmt.Errorf("CNI network %q (%s): %w", conf.list.Name, conf.file, err))
	}
	return nil
}

// statusCache holds the last answer to STATUS.
type statusCache struct {
	mu     sync.Mutex
	of     *configuration // whose answer it is; nil: there is none yet
	err    error
	at     time.Time
	asking chan struct{} // closed when the plugins that are asked now have answered; nil: none are
}

var errNotAsked = errors.New("its plugins have not answered to STATUS yet")

func (s *statusCache) get(ctx context.Context, n *Network, conf *configuration) error {
	s.mu.Lock()
	if s.of == conf && time.Since(s.at) < statusFresh {
		defer s.mu.Unlock()
		return s.err
	}
	if s.asking == nil {
		s.asking = make(chan struct{})
		n.background.Add(1)
		go s.ask(n, conf)
	}
	asking := s.asking
	s.mu.Unlock()

	timer := time.NewTimer(statusPatience)
	defer timer.Stop()
	select {
	case <-asking:
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of != conf {
		return errNotAsked
	}
	return s.err
}

// ask runs STATUS once.
func (s *statusCache) ask(n *Network, conf *configuration) {
	defer n.background.Done()
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.Bounds.Status)
	defer cancel()
	err := n.lib.GetStatusNetworkList(ctx, conf.list)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of, s.err, s.at = conf, err, time.Now()
	close(s.asking)
	s.asking = nil
}
