package stdio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"monopod.dev/monopod/internal/executor/crilog"
)

// Another process can go on with a container's output where this one has stopped: its ends of the pipes are the same. For nothing to be lost between the
// two, this one stops between two reads, with all that it has read in the log and with the clients.
//
// What is left of an unfinished line is written as a part of one; the next writer goes on with the same line.

// freeze is one stop of all pumps.
type freeze struct {
	parked  int           // pumps that have stopped
	settled chan struct{} // closed when all that live have
	thawed  chan struct{}
}

// Freeze stops the reading of output, and returns when all that was read has been written to the log and to the clients, as far as those take it. A stopped
// container's output waits in its pipes. Thaw lets it go on; after an error it is to be called, too.
func (s *Stdio) Freeze(ctx context.Context) error {
	s.mu.Lock()
	if s.frozen != nil {
		s.mu.Unlock()
		return errors.New("the container's output has been stopped already")
	}
	fz := &freeze{settled: make(chan struct{}), thawed: make(chan struct{})}
	s.frozen = fz
	close(s.stir)
	s.settle()
	s.mu.Unlock()
	for _, f := range s.outputs() {
		if err := f.SetReadDeadline(time.Unix(1, 0)); errors.Is(err, os.ErrNoDeadline) { // else it is closed: its pump ends
			return fmt.Errorf("the container's output cannot be stopped: %w", err)
		}
	}
	select {
	case <-fz.settled:
	case <-ctx.Done():
		return fmt.Errorf("the container's output is not written in time: %w", ctx.Err())
	}
	s.flush(ctx)
	return nil
}

// flush waits until the clients have what was read. One that is slow is given up with ctx: it would be later, too.
func (s *Stdio) flush(ctx context.Context) {
	s.mu.Lock()
	var idle []<-chan struct{}
	for c := range s.clients {
		for _, o := range c.outlets {
			idle = append(idle, o.idle())
		}
	}
	s.mu.Unlock()
	for _, ch := range idle {
		select {
		case <-ch:
		case <-ctx.Done():
			return
		}
	}
}

// Thaw ends what Freeze has begun.
func (s *Stdio) Thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen == nil {
		return
	}
	for _, f := range s.outputs() {
		_ = f.SetReadDeadline(time.Time{}) // one that is closed has nothing to go on with
	}
	close(s.frozen.thawed)
	s.frozen, s.stir = nil, make(chan struct{})
}

func (s *Stdio) outputs() (files []*os.File) {
	for _, f := range []*os.File{s.cfg.Stdout, s.cfg.Stderr, s.cfg.PTY} {
		if f != nil {
			files = append(files, f)
		}
	}
	return files
}

// settle is called when a pump has stopped or ended. The caller holds mu.
func (s *Stdio) settle() {
	if s.frozen != nil && s.frozen.parked == s.pumps {
		select {
		case <-s.frozen.settled:
		default:
			close(s.frozen.settled)
		}
	}
}

// pass lets a pump go on to its next read; while the output is stopped it waits.
func (s *Stdio) pass(logged *crilog.Stream) {
	s.mu.Lock()
	fz := s.frozen
	s.mu.Unlock()
	if fz == nil {
		return
	}
	if logged != nil {
		s.noteLog(0, logged.Close())
	}
	s.mu.Lock()
	fz.parked++
	s.settle()
	s.mu.Unlock()
	<-fz.thawed
}

// stirred is closed when the output is to stop.
func (s *Stdio) stirred() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stir
}

// pumpEnds is called when a stream has ended.
func (s *Stdio) pumpEnds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pumps--
	s.settle()
}
