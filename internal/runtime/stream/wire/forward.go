package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/spdystream"
	tunnel "k8s.io/client-go/tools/portforward"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

const (
	// maxForwards bounds the connections that one client forwards at a time: each costs descriptors of this process.
	maxForwards = 1024
	// pairTimeout bounds how long one stream of a pair waits for the other.
	pairTimeout = 30 * time.Second
)

// forward serves a client's port-forward in the protocol that it asks for. With an empty list it may forward to any port.
func (s *session) forward(ports []uint16, dial func(port uint16, client Duplex) error) {
	err := func() error {
		if !wsstream.IsWebSocketRequest(s.req) {
			if _, err := s.upgradeSPDY(portforward.SupportedProtocols); err != nil {
				return err
			}
			return s.forwardStreams(s.conn, ports, dial)
		}
		served := []string{portforward.WebsocketsSPDYTunnelingPortForwardV1}
		if len(ports) > 0 { // the other ones have no way to name a port
			served = append(served, "", v4Channels)
			if 2*len(ports) <= '~'-'0' { // where a channel's number is a character
				served = append(served, v4Base64Channels)
			}
		}
		ws, protocol, err := s.upgradeWebSocket(served...)
		if err != nil {
			return err
		}
		if protocol == portforward.WebsocketsSPDYTunnelingPortForwardV1 {
			return s.forwardStreams(tunnel.NewTunnelingConnection("server", ws), ports, dial)
		}
		return s.forwardChannels(newChannels(s, ws, protocol, make([]*io.PipeWriter, 2*len(ports))), ports, dial)
	}()
	if err != nil {
		s.log.Debug("ports were not forwarded", "error", err)
	}
}

// pair is one forwarded connection over SPDY: its data, and what goes wrong with it.
type pair struct {
	data, errors *spdystream.Stream
	opened       int
	late         *time.Timer
}

// forwarder forwards the connections of one client.
type forwarder struct {
	conn  *spdyConn
	total *atomic.Int64 // of all forwarders
	ports []uint16
	dial  func(port uint16, client Duplex) error

	mu    sync.Mutex
	pairs map[string]*pair // incomplete, by the client's name for them
	count int              // of pairs, complete ones too
	work  sync.WaitGroup
	ready chan struct{} // closed when conn is set
}

// forwardStreams serves pairs of streams until the client has gone.
func (s *session) forwardStreams(conn net.Conn, ports []uint16, dial func(uint16, Duplex) error) error {
	f := &forwarder{total: s.forwards, ports: ports, dial: dial, pairs: map[string]*pair{}, ready: make(chan struct{})}
	var err error
	if f.conn, err = s.serveSPDY(conn, f.accept); err != nil {
		return err
	}
	close(f.ready)
	select {
	case <-s.ctx.Done():
	case <-f.conn.served:
		s.end(ErrClientGone) // and with it the connections that are forwarded
	}
	f.conn.end()
	f.mu.Lock()
	for id, p := range f.pairs {
		p.late.Stop()
		delete(f.pairs, id)
		f.forget()
	}
	f.mu.Unlock()
	f.work.Wait()
	return nil
}

func (f *forwarder) accept(stream *spdystream.Stream) (opened func()) {
	kind, id, port, err := pairOf(stream)
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pairs[id]
	if err != nil || len(f.ports) > 0 && !slices.Contains(f.ports, port) || p == nil && f.count >= maxForwards {
		return nil
	}
	if p == nil {
		if f.total.Add(1) > maxForwardsTotal {
			f.total.Add(-1)
			return nil
		}
		p = &pair{}
		f.pairs[id] = p
		f.count++
		p.late = time.AfterFunc(pairTimeout, func() { f.giveUp(id, p) })
	}
	slot := &p.data
	if kind == portforward.StreamTypeError {
		slot = &p.errors
	}
	if *slot != nil {
		return nil
	}
	*slot = stream
	return func() { f.opened(id, p, port) }
}

// opened begins to serve a pair when both of its streams are there.
func (f *forwarder) opened(id string, p *pair, port uint16) {
	f.mu.Lock()
	p.opened++
	complete := p.opened == 2 && f.pairs[id] == p
	if complete {
		delete(f.pairs, id)
		p.late.Stop()
	}
	f.mu.Unlock()
	if complete {
		f.work.Go(func() {
			<-f.ready
			f.serve(p, port)
		})
	}
}

// giveUp ends a pair of which one stream has not come.
func (f *forwarder) giveUp(id string, p *pair) {
	f.mu.Lock()
	late := f.pairs[id] == p
	if late {
		delete(f.pairs, id)
		f.forget()
	}
	f.mu.Unlock()
	if !late {
		return
	}
	<-f.ready
	for _, stream := range []*spdystream.Stream{p.data, p.errors} {
		if stream != nil {
			f.conn.discard(stream)
		}
	}
}

// serve serves one forwarded connection.
func (f *forwarder) serve(p *pair, port uint16) {
	err := f.dial(port, &streamDuplex{touching: touching{session: f.conn.session, Reader: p.data, Writer: p.data}, stream: p.data, conn: f.conn})
	if err != nil && !errors.Is(err, errReset) {
		fmt.Fprintf(p.errors, "error forwarding port %d: %v", port, err)
	}
	// What was written is told to be complete before the streams are forgotten; one that was reset by the client needs no more.
	for _, stream := range []*spdystream.Stream{p.errors, p.data} {
		_ = stream.Close()
		f.conn.discard(stream)
	}
	f.mu.Lock()
	f.forget()
	f.mu.Unlock()
}

// forget counts a pair out.
func (f *forwarder) forget() {
	f.count--
	f.total.Add(-1)
}

// pairOf reads the headers of a stream of a port-forward.
func pairOf(stream *spdystream.Stream) (kind, id string, port uint16, err error) {
	h := stream.Headers()
	n, err := strconv.ParseUint(h.Get(portforward.PortHeader), 10, 16)
	if err != nil || n == 0 {
		return "", "", 0, fmt.Errorf("%q is not a port", h.Get(portforward.PortHeader))
	}
	kind, id = h.Get(portforward.StreamType), h.Get(portforward.PortForwardRequestIDHeader)
	switch {
	case kind != portforward.StreamTypeData && kind != portforward.StreamTypeError:
		return "", "", 0, fmt.Errorf("%q is not a type of stream", kind)
	case id == "" && kind == portforward.StreamTypeError:
		// Very old clients do not name their pairs: the data stream is the one after the error stream, and a client's
		// streams have odd numbers.
		id = "#" + strconv.FormatUint(uint64(stream.Identifier()), 10)
	case id == "":
		id = "#" + strconv.FormatUint(uint64(stream.Identifier())-2, 10)
	}
	return kind, id, uint16(n), nil
}

// streamDuplex is a client's end of a connection that is forwarded over SPDY.
type streamDuplex struct {
	touching
	stream *spdystream.Stream
	conn   *spdyConn
}

func (d *streamDuplex) Read(p []byte) (int, error) {
	n, err := d.touching.Read(p)
	if errors.Is(err, io.EOF) && d.conn.wasReset(d.stream) {
		err = errReset
	}
	return n, err
}

func (d *streamDuplex) CloseWrite() error { return d.stream.Close() }

// forwardChannels serves two channels a port: 2n its data, 2n+1 what goes wrong with it. Each begins with the port's number.
func (s *session) forwardChannels(c *channels, ports []uint16, dial func(uint16, Duplex) error) error {
	clients := make([]*channelDuplex, len(ports))
	for i, port := range ports {
		head := binary.LittleEndian.AppendUint16(nil, port)
		data, problems := c.writer(byte(2*i)), c.writer(byte(2*i+1))
		for _, w := range []io.Writer{data, problems} {
			if _, err := w.Write(head); err != nil {
				return err
			}
		}
		r, w := io.Pipe()
		c.sinks[2*i] = w
		clients[i] = &channelDuplex{touching: touching{session: s, Reader: r, Writer: data}, in: r, problems: problems}
	}
	s.work.Go(c.read)
	var work sync.WaitGroup
	for i, port := range ports {
		work.Go(func() {
			err := dial(port, clients[i])
			clients[i].in.Close()
			if err != nil {
				fmt.Fprintf(clients[i].problems, "error forwarding port %d: %v", port, err)
			}
		})
	}
	work.Wait()
	if s.ctx.Err() == nil {
		_ = s.conn.SetWriteDeadline(time.Now().Add(lastWords))
		c.bye()
	}
	return nil
}

// channelDuplex is a client's end of a connection that is forwarded over a WebSocket's channels.
type channelDuplex struct {
	touching
	in       *io.PipeReader
	problems io.Writer
}

// CloseWrite cannot be said in v4.
func (*channelDuplex) CloseWrite() error {
	return fmt.Errorf("half-close over %s: %w", v4Channels, errors.ErrUnsupported)
}
