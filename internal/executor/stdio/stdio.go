// Package stdio moves a container's input and output: from its pipes or its pty into the log and to attached clients,
// and from clients into its stdin.
//
// The log sets the pace: output is read only as fast as it is logged, so a container that prints without pause is slowed
// down instead of filling memory. Clients do not set the pace: each has a bounded buffer, and one that falls behind is
// closed.
package stdio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/crilog"
)

// Names of streams.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Config says what a container's stdio consists of. The files are non-blocking, and become Stdio's.
type Config struct {
	Stdin  *os.File // the end we write; nil: none
	Stdout *os.File // nil: none
	Stderr *os.File // nil: none
	// PTY is the pty's master, instead of the three.
	PTY *os.File
	// Log takes the output; nil: it is discarded. It becomes Stdio's.
	Log *crilog.File
	// Ended is closed when the container's process has ended.
	Ended <-chan struct{}
	// CloseStdin is called once when stdin has been closed for good, before the container can see that: whoever else
	// has the descriptor closes it too.
	CloseStdin func()
	Logger     *slog.Logger
}

// Stdio is the input and output of one container. Methods are safe for concurrent use.
type Stdio struct {
	cfg     Config
	drained chan struct{}
	stdin   *input // nil: none

	mu      sync.Mutex
	clients map[*client]struct{}
	head    []byte // the first output, for an error message of the init code; nil once that has gone
	heading bool
	logDown int64         // bytes that the log could not take, since it last could
	pumps   int           // that live
	frozen  *freeze       // nil: the output is read
	stir    chan struct{} // closed while frozen is set
}

// headSize bounds what is kept of the first output.
const headSize = 512

// New starts to read the output.
func New(cfg Config) *Stdio {
	s := &Stdio{cfg: cfg, drained: make(chan struct{}), clients: map[*client]struct{}{}, heading: true, stir: make(chan struct{})}
	s.pumps = len(s.outputs())
	in := cfg.Stdin
	if cfg.PTY != nil {
		in = cfg.PTY
	}
	if in != nil {
		s.stdin = newInput(in, cfg.PTY == nil, cfg.CloseStdin)
	}
	var wg sync.WaitGroup
	for name, f := range map[string]*os.File{Stdout: cfg.Stdout, Stderr: cfg.Stderr} {
		if f != nil {
			wg.Go(func() { s.pump(name, f); f.Close(); s.pumpEnds() })
		}
	}
	if cfg.PTY != nil {
		wg.Go(func() { s.pump(Stdout, cfg.PTY); s.pumpEnds() })
	}
	go func() {
		wg.Wait()
		s.endClients()
		close(s.drained)
	}()
	return s
}

// Drained is closed when all output has been read and logged.
func (s *Stdio) Drained() <-chan struct{} { return s.drained }

// Files returns our ends by name: stdin, stdout, stderr, or pty. They stay Stdio's, and may be closed already.
func (s *Stdio) Files() map[string]*os.File {
	files := map[string]*os.File{"stdin": s.cfg.Stdin, Stdout: s.cfg.Stdout, Stderr: s.cfg.Stderr, "pty": s.cfg.PTY}
	maps.DeleteFunc(files, func(_ string, f *os.File) bool { return f == nil })
	return files
}

// Close gives up what is not read yet. The log is closed.
func (s *Stdio) Close() {
	s.Thaw()
	for _, f := range []*os.File{s.cfg.Stdout, s.cfg.Stderr, s.cfg.PTY} {
		if f != nil {
			f.Close()
		}
	}
	if s.stdin != nil {
		s.stdin.close()
	}
	<-s.drained
	if s.cfg.Log != nil {
		s.cfg.Log.Close()
	}
}

// Reopen makes the log go on in a new file.
func (s *Stdio) Reopen() error {
	if s.cfg.Log == nil {
		return fmt.Errorf("%w: the container has no log", errdefs.ErrFailedPrecondition)
	}
	return s.cfg.Log.Reopen()
}

// FixLog lets nobody make a new file of the log but Reopen.
func (s *Stdio) FixLog() {
	if s.cfg.Log != nil {
		s.cfg.Log.Fix()
	}
}

// Resize sets the pty's window size.
func (s *Stdio) Resize(width, height uint16) error {
	if s.cfg.PTY == nil {
		return fmt.Errorf("%w: the container has no terminal", errdefs.ErrFailedPrecondition)
	}
	return SetSize(s.cfg.PTY, width, height)
}

// SetSize sets the window size of a pty by its master.
func SetSize(pty *os.File, width, height uint16) error {
	rc, err := pty.SyscallConn()
	if err != nil {
		return err
	}
	var ierr error
	if err := rc.Control(func(fd uintptr) {
		ierr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height})
	}); err != nil {
		return err
	}
	return ierr
}

// TakeHead returns the first output so far, and stops to keep it.
func (s *Stdio) TakeHead() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	head := string(s.head)
	s.head, s.heading = nil, false
	return head
}

// chunk is the size of a read buffer. It is what can be lost of a stream when the worker is killed.
const chunk = 16 << 10

// chunks are shared by all streams: one is taken only when there is something to read.
var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// hangupPause is how long a pty that nobody has open is left alone. There is no event for its being opened again.
const hangupPause = 200 * time.Millisecond

// pump reads a stream to its end.
func (s *Stdio) pump(name string, f *os.File) {
	var logged *crilog.Stream
	if s.cfg.Log != nil {
		logged = s.cfg.Log.Stream(name)
		defer func() { s.noteLog(0, logged.Close()) }()
	}
	rc, err := f.SyscallConn()
	if err != nil {
		s.cfg.Logger.Error("container output cannot be read", "stream", name, "error", err)
		return
	}
	for {
		s.pass(logged)
		var rerr error
		n := 0
		err := rc.Read(func(fd uintptr) bool {
			buf := chunks.Get().(*[chunk]byte)
			defer chunks.Put(buf)
			n, rerr = unix.Read(int(fd), buf[:])
			if errors.Is(rerr, unix.EAGAIN) {
				return false
			}
			if rerr == nil && n > 0 {
				s.take(name, logged, buf[:n])
			}
			return true
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // it is to stop
		case err != nil: // closed by us
			return
		case errors.Is(rerr, unix.EINTR):
		case errors.Is(rerr, unix.EIO) && s.cfg.PTY == f && !s.ended():
			// Nobody has the pty open just now, but the container lives and may open it again.
			select {
			case <-time.After(hangupPause):
			case <-s.stirred():
			case <-s.cfg.Ended:
			}
		case rerr != nil, n == 0:
			return
		}
	}
}

func (s *Stdio) ended() bool {
	select {
	case <-s.cfg.Ended:
		return true
	default:
		return false
	}
}

// take passes output on: to the log, which may take its time, and to the clients, which may not.
func (s *Stdio) take(name string, logged *crilog.Stream, p []byte) {
	if logged != nil {
		_, err := logged.Write(p)
		s.noteLog(len(p), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heading && len(s.head) < headSize {
		s.head = append(s.head, p[:min(len(p), headSize-len(s.head))]...)
	}
	for c := range s.clients {
		c.offer(name, p)
	}
}

// noteLog says once when the log fails, and once when it works again.
func (s *Stdio) noteLog(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && s.logDown == 0:
		s.cfg.Logger.Error("container log cannot be written; output is lost until it can", "error", err)
		s.logDown = int64(max(n, 1))
	case err != nil:
		s.logDown += int64(n)
	case s.logDown > 0:
		s.cfg.Logger.Warn("container log is written again", "lost_bytes", s.logDown)
		s.logDown = 0
	}
}

// Attachment is a client's end of a container's stdio. The files become Attach's.
type Attachment struct {
	Name   string   // what Feed calls it; empty: nothing
	Stdin  *os.File // we read it; nil: none
	Stdout *os.File // we write it; nil: none
	Stderr *os.File // we write it; nil: none
	// StdinOnce closes the container's stdin when this client's ends.
	StdinOnce bool
	// Joined is called when the client is one of those that get what is read from there on; nil: it does not matter. It is not called when all output was read before.
	Joined func()
}

// Attach serves a client until the container's output is drained, ctx ends, the client falls behind, or its input ends without ending the container's: whoever has
// said all that it wanted to say does not wait for a program that goes on.
func (s *Stdio) Attach(ctx context.Context, a Attachment) error {
	c := newClient(a)
	s.mu.Lock()
	select {
	case <-s.drained:
		s.mu.Unlock()
		c.close()
		if a.Stdin != nil {
			a.Stdin.Close()
		}
		return nil
	default:
	}
	s.clients[c] = struct{}{}
	s.mu.Unlock()
	if a.Joined != nil {
		a.Joined()
	}
	defer func() {
		s.mu.Lock()
		delete(s.clients, c)
		s.mu.Unlock()
	}()
	ictx, stopInput := context.WithCancel(ctx)
	inputDone := make(chan struct{})
	go func() {
		defer close(inputDone)
		if a.Stdin != nil && s.feed(ictx, a) {
			c.finish()
		}
	}()
	err := c.run(ctx)
	stopInput()
	<-inputDone
	return err
}

// Feed serves the stdin of a client that is attached by a name, and has none. It returns when the stdin has ended, or ctx has.
func (s *Stdio) Feed(ctx context.Context, name string, a Attachment) error {
	s.mu.Lock()
	var to *client
	for c := range s.clients {
		if c.name == name {
			to = c
		}
	}
	s.mu.Unlock()
	if to == nil {
		a.Stdin.Close()
		return fmt.Errorf("%w: attachment %q", errdefs.ErrNotFound, name)
	}
	if s.feed(ctx, a) {
		to.finish()
	}
	return nil
}

// endClients lets the clients finish what they have.
func (s *Stdio) endClients() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.clients {
		c.finish()
	}
}
