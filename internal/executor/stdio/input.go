package stdio

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// input is a container's stdin. Several clients may write to it, one chunk at a time.
type input struct {
	f         *os.File
	closable  bool   // a pipe: closing it ends the container's stdin; a pty's master stays open
	onClose   func() // called before the first close
	turn      chan struct{}
	closing   chan struct{} // closed first, so that no writer starts again
	closeOnce sync.Once
}

func newInput(f *os.File, closable bool, onClose func()) *input {
	in := &input{f: f, closable: closable, onClose: onClose, turn: make(chan struct{}, 1), closing: make(chan struct{})}
	in.turn <- struct{}{}
	return in
}

// errInputClosed says that the container's stdin is closed for good.
var errInputClosed = errors.New("the container's stdin is closed")

// write waits for its turn, and for the container to take all of p.
func (in *input) write(ctx context.Context, p []byte) error {
	select {
	case <-in.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { in.turn <- struct{}{} }()
	in.f.SetWriteDeadline(time.Time{}) // before the check: close sets its own after it has said that it closes
	select {
	case <-in.closing:
		return errInputClosed
	default:
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		in.f.SetWriteDeadline(time.Unix(1, 0))
	})
	_, err := in.f.Write(p)
	if !stop() {
		<-interrupted // the deadline is this turn's: it must not hit the next one
	}
	return err
}

// close ends the container's stdin. It waits for nobody: a write that the container does not take fails.
func (in *input) close() {
	if !in.closable {
		return
	}
	in.closeOnce.Do(func() {
		close(in.closing)
		in.f.SetWriteDeadline(time.Unix(1, 0))
		<-in.turn
		defer func() { in.turn <- struct{}{} }()
		if in.onClose != nil {
			in.onClose()
		}
		in.f.Close()
	})
}

// feed copies a client's stdin to the container's, until the client's ends, the container's is closed, or ctx ends. It says whether there is nothing left for the
// client to wait for: its input has ended, and that ends nothing in the container.
func (s *Stdio) feed(ctx context.Context, a Attachment) (served bool) {
	defer a.Stdin.Close()
	stop := context.AfterFunc(ctx, func() { a.Stdin.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if s.stdin == nil {
		return false
	}
	ended := false
	buf := make([]byte, 4<<10)
	for {
		n, err := a.Stdin.Read(buf)
		if n > 0 {
			if werr := s.stdin.write(ctx, buf[:n]); werr != nil {
				break
			}
		}
		if err != nil {
			ended = errors.Is(err, io.EOF)
			break
		}
	}
	if a.StdinOnce {
		s.stdin.close()
	}
	return ended && !(a.StdinOnce && s.stdin.closable)
}
