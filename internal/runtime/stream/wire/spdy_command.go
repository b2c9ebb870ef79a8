package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/moby/spdystream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// spdyCommand is one process's streams over SPDY.
type spdyCommand struct {
	conn       *spdyConn
	structured bool // the status is JSON
	client     Streams

	mu      sync.Mutex
	streams map[string]*spdystream.Stream // by type
}

// openStreams upgrades the request to SPDY and waits until the client has opened the streams that it asked for.
func (s *session) openStreams(opts options) (transport, error) {
	protocol, err := s.upgradeSPDY(remotecommand.SupportedStreamingProtocols)
	if err != nil {
		return nil, err
	}
	resize := protocol == remotecommand.StreamProtocolV4Name || protocol == remotecommand.StreamProtocolV3Name
	wanted := []string{remotecommand.StreamTypeError}
	for _, stream := range []struct {
		is   bool
		name string
	}{
		{opts.stdin, remotecommand.StreamTypeStdin}, {opts.stdout, remotecommand.StreamTypeStdout},
		{opts.stderr, remotecommand.StreamTypeStderr}, {opts.tty && resize, remotecommand.StreamTypeResize},
	} {
		if stream.is {
			wanted = append(wanted, stream.name)
		}
	}
	c := &spdyCommand{structured: protocol == remotecommand.StreamProtocolV4Name, streams: map[string]*spdystream.Stream{}}
	opened := make(chan struct{}, len(wanted))
	c.conn, err = s.serveSPDY(s.conn, func(stream *spdystream.Stream) func() {
		name := stream.Headers().Get(remotecommand.StreamType)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.streams[name] != nil || !slices.Contains(wanted, name) {
			return nil
		}
		c.streams[name] = stream
		return func() { opened <- struct{}{} }
	})
	if err != nil {
		return nil, err
	}
	s.work.Go(func() { // however this session ends
		select {
		case <-s.ctx.Done():
		case <-c.conn.served:
			s.end(ErrClientGone)
		}
		c.conn.end()
	})
	expired := time.After(remotecommand.DefaultStreamCreationTimeout)
	for range wanted {
		select {
		case <-opened:
		case <-expired:
			return nil, fmt.Errorf("the client has not opened the streams %v within %v", wanted, remotecommand.DefaultStreamCreationTimeout)
		case <-s.ctx.Done():
			return nil, context.Cause(s.ctx)
		}
	}
	c.connect(s)
	return c, nil
}

// connect makes the client's streams those of a process.
func (c *spdyCommand) connect(s *session) {
	if in := c.streams[remotecommand.StreamTypeStdin]; in != nil {
		r, w := io.Pipe()
		c.client.Stdin = r
		s.work.Go(func() {
			_, _ = io.Copy(w, touching{session: s, Reader: in})
			w.Close()
			// What the process does not want is read all the same, so that frames of other streams get through.
			_, _ = io.Copy(io.Discard, in)
		})
	}
	if out := c.streams[remotecommand.StreamTypeStdout]; out != nil {
		c.client.Stdout = touching{session: s, Writer: out}
	}
	if out := c.streams[remotecommand.StreamTypeStderr]; out != nil {
		c.client.Stderr = touching{session: s, Writer: out}
	}
	if resize := c.streams[remotecommand.StreamTypeResize]; resize != nil {
		sizes := make(chan Size, 1)
		c.client.Sizes = sizes
		s.work.Go(func() { readSizes(resize, sizes) })
	}
}

func (c *spdyCommand) process() Streams { return c.client }

// finish implements transport. The streams are closed in the order in which clients wait for them.
func (c *spdyCommand) finish(how metav1.Status) {
	_ = c.conn.net.SetWriteDeadline(time.Now().Add(lastWords))
	var errs []error
	for _, name := range []string{remotecommand.StreamTypeStdout, remotecommand.StreamTypeStderr, remotecommand.StreamTypeError,
		remotecommand.StreamTypeStdin, remotecommand.StreamTypeResize} {
		stream := c.streams[name]
		if stream == nil {
			continue
		}
		if name == remotecommand.StreamTypeError {
			if raw := encodeStatus(how, c.structured); len(raw) > 0 {
				_, err := stream.Write(raw)
				errs = append(errs, err)
			}
		}
		errs = append(errs, stream.Close())
	}
	if err := errors.Join(errs...); err != nil {
		c.conn.session.log.Debug("a client may not know how its process ended", "error", err)
		return
	}
	c.conn.session.goodbye(c.conn.served)
}
