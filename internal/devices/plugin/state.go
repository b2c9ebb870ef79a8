package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/devices/inventory"
)

// What happens to a session is done to it here, under the lock.

// ended says how a stream ended.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return errStreamEnded
	}
	return fmt.Errorf("ListAndWatch: %w", plain(err))
}

// install makes a registration a session, or gives it to the one that waits at the same socket. s.mu is held.
func (r *runner) install(o offer) {
	p := r.plugins[o.resource]
	if p == nil {
		p = &plugin{}
		r.plugins[o.resource] = p
	}
	defer r.touch()
	for _, waiting := range []*session{p.next, p.live} {
		if waiting != nil && waiting.socket == o.socket && (waiting == p.next || waiting.line == nil) {
			waiting.again(o)
			return
		}
	}
	if p.next != nil {
		p.next.cancel()
	}
	ctx, cancel := context.WithCancel(r.ctx)
	p.next = &session{
		source: r.Source, resource: o.resource, socket: o.socket, cancel: cancel, kick: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		registered: o.options, from: o.from, anew: true, reached: true, abort: func() {}, since: time.Now(),
	}
	next := p.next
	next.expiry = time.AfterFunc(r.cfg.Grace, func() { r.expire(next) })
	r.log.Info("device plugin has registered", "resource", o.resource, "socket", o.socket)
	r.wg.Go(func() {
		defer cancel()
		next.run(ctx)
	})
}

// again has a session that has no devices to lose begin anew. source.mu is held.
func (s *session) again(o offer) {
	s.registered, s.from, s.anew, s.dismissed = o.options, o.from, true, nil
	s.expired, s.reached = false, true
	s.expiry.Reset(s.source.cfg.Grace) // it may serve only after this registration
	s.stop()
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// stop ends the attempt under way: what it still finds does not count. source.mu is held.
func (s *session) stop() {
	s.line = nil
	s.attempts++
	s.abort()
}

// begin is the beginning of an attempt, and numbers it.
func (s *Source) begin(one *session, abort context.CancelFunc) (attempt int, registered *v1beta1.DevicePluginOptions, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.attempts++
	one.abort = abort
	return one.attempts, one.registered, one.dismissed
}

// reached notes what came of the connection. Only after a new registration may it be with another socket than the plugin's last: what comes to
// the same path may be a plugin of something else.
func (s *Source) reached(one *session, at file, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.reached = err == nil && (one.anew || at == one.at)
	if err == nil && !one.reached {
		return errOtherSocket
	}
	return err
}

// opened notes that the stream is open.
func (s *Source) opened(one *session, attempt int, l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.attempts != attempt {
		return
	}
	one.line, one.options, one.failure = l, l.options, ""
	s.touch()
}

// told takes a list of devices. It returns false for a session that has lost its place to another.
func (s *Source) told(one *session, attempt int, at file, devices []inventory.Device, wrong []note) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plugins[one.resource]
	if p == nil || one != p.next && one != p.live || one.attempts != attempt {
		return false
	}
	if one == p.next {
		if p.live != nil {
			p.live.cancel()
		}
		p.live, p.next = one, nil
	}
	if !one.listed || one.anew || !one.since.IsZero() {
		s.log.Info("device plugin is ready", "resource", one.resource, "socket", one.socket, "devices", len(devices))
	}
	for _, n := range wrong {
		if !slices.ContainsFunc(one.notes, func(o note) bool { return o.kind == n.kind }) {
			s.log.Warn("device plugin's list of devices", "resource", one.resource, "socket", one.socket, "problem", n.text)
		}
	}
	one.expiry.Stop()
	delete(s.awaited, one.resource)
	delete(s.lost, one.resource)
	one.listed, one.anew, one.expired, one.since = true, false, false, time.Time{}
	one.at, one.devices, one.notes = at, devices, wrong
	s.touch()
	return true
}

// failed takes the end of an attempt: without a stream no device is healthy. It returns false when the session is over.
func (s *Source) failed(one *session, attempt int, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plugins[one.resource]
	if p == nil || one != p.next && one != p.live {
		return false
	}
	switch {
	case one.dismissed != nil:
		err = one.dismissed
	case one.attempts != attempt:
		err = errAgain
	}
	why := err.Error()
	one.line, one.abort = nil, func() {}
	if one.listed && one.since.IsZero() {
		one.since, one.end, one.failure = time.Now(), why, ""
		one.expiry = time.AfterFunc(s.cfg.Grace, func() { s.expire(one) })
		s.log.Warn("device plugin is gone", "resource", one.resource, "socket", one.socket, "error", err)
	} else if one.listed && (errors.Is(err, errNoSocket) || errors.Is(err, errNotServed) || errors.Is(err, errAgain)) {
		why = one.end // that it is away, or on its way back, is what being gone means
	}
	news := one.failure != why
	one.failure = why
	if news && !one.listed {
		s.log.Info("device plugin does not answer yet", "resource", one.resource, "socket", one.socket, "error", err)
	}
	if news {
		if one.listed {
			one.devices = gone(one.devices, one.absence())
		}
		s.touch()
	}
	if one.over() {
		s.drop(one)
		return false
	}
	return true
}

// over says that nothing is to be expected of a session any more. source.mu is held.
func (s *session) over() bool { return s.expired && (s.dismissed != nil || !s.reached) }

// expire ends the grace period. A session whose plugin is there, and refuses, stays and is tried again.
func (s *Source) expire(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.listed && one.since.IsZero() {
		return // it came back at the last moment
	}
	one.expired, one.devices = true, nil
	if one.over() {
		s.drop(one)
	}
	s.touch()
}

// forget is the end of a session's goroutine.
func (s *Source) forget(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(one)
}

// drop ends a session, in one step with its place: a registration that comes now is a new session's. s.mu is held.
func (s *Source) drop(one *session) {
	one.cancel()
	one.expiry.Stop()
	one.line = nil
	p := s.plugins[one.resource]
	if p == nil || one != p.live && one != p.next {
		return
	}
	if one == p.live {
		p.live = nil
	} else {
		p.next = nil
	}
	if p.live == nil && p.next == nil {
		delete(s.plugins, one.resource)
		if one.listed && one.expired {
			s.lose(one.problems()...)
		}
	}
	s.log.Info("device plugin is forgotten until it registers again", "resource", one.resource, "socket", one.socket)
	s.touch()
}

// maxLost bounds how many resources are remembered whose plugins are gone.
const maxLost = 64

// lose remembers why resources have gone. s.mu is held.
func (s *Source) lose(problems ...inventory.Problem) {
	for _, p := range problems {
		if len(s.lost) < maxLost {
			s.lost[p.Resource] = p
		}
	}
}

// dismiss ends what a session has, as if its plugin had gone.
func (s *Source) dismiss(one *session, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.dismissed = why
	one.stop()
}

// dismissFrom dismisses what a registration had brought that has ended with its socket.
func (s *Source) dismissFrom(key, path string) {
	s.mu.Lock()
	var from []*session
	for _, p := range s.plugins {
		for _, one := range []*session{p.live, p.next} {
			if one != nil && one.from == key {
				from = append(from, one)
			}
		}
	}
	s.mu.Unlock()
	for _, one := range from {
		why := errors.New("its socket was removed")
		if one.socket != path {
			why = fmt.Errorf("the socket %s, by which it has registered, was removed", path)
		}
		s.dismiss(one, why)
	}
}
