// Package server answers DNS over UDP and TCP.
//
// What the cluster's view or the cache knows is answered where it is read, in microseconds and without a goroutine. Who has to wait for
// others has one of a bounded number of places, of which a client has a part at most; who finds none is told that the server failed, at
// once. So no client can keep others from what is known here.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/dns/answer"
	"monopod.dev/monopod/internal/dns/message"
)

// Port is that of DNS.
const Port = 53

// Upstream asks others.
type Upstream interface {
	// Cached returns an answer that is known, and how old it is; Ask waits for one.
	Cached(q *message.Query) (*message.Foreign, time.Duration, bool)
	Ask(ctx context.Context, q *message.Query) (*message.Foreign, time.Duration, error)
}

// Pods looks for pods.
type Pods interface {
	// HasPod says whether a namespace has a pod with this address.
	HasPod(ctx context.Context, namespace string, address netip.Addr) (bool, error)
}

// Config says how to serve.
type Config struct {
	// Addresses are those that are listened at, which the host need not have yet. Port is Port, or 0 for any free one, the same for all.
	Addresses []netip.Addr
	Port      uint16
	Zone      *answer.Zone
	View      answer.View
	Upstream  Upstream
	// Pods; nil: there are no names of pods' addresses.
	Pods   Pods
	Limits Limits
	Log    *slog.Logger
}

// Server is a server. Its sockets are open from New on, so that who asks before Run waits, and is answered then.
type Server struct {
	cfg     Config
	log     *slog.Logger
	packets []*net.UDPConn
	streams []*net.TCPListener
	// waiting are the clients that wait for others, connections those with TCP connections.
	waiting, connections *places
	tasks                sync.WaitGroup
}

// New opens the sockets. Its error says who may have the port.
func New(ctx context.Context, cfg Config) (_ *Server, err error) {
	cfg.Limits.fill()
	s := &Server{
		cfg: cfg, log: cfg.Log, waiting: newPlaces(cfg.Limits.Waiting, cfg.Limits.WaitingPerClient),
		connections: newPlaces(cfg.Limits.Connections, cfg.Limits.ConnectionsPerClient),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	for _, a := range cfg.Addresses {
		if err := s.listen(ctx, a); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// listen opens the sockets at one address.
func (s *Server) listen(ctx context.Context, a netip.Addr) error {
	config := net.ListenConfig{Control: freebind(a)}
	at := netip.AddrPortFrom(a, s.cfg.Port).String()
	l, err := config.Listen(ctx, "tcp", at)
	if err != nil {
		return inUse(at, err)
	}
	s.streams = append(s.streams, l.(*net.TCPListener)) // "tcp" gives these
	if s.cfg.Port == 0 {
		at = l.Addr().String()
	}
	p, err := config.ListenPacket(ctx, "udp", at)
	if err != nil {
		return inUse(at, err)
	}
	s.packets = append(s.packets, p.(*net.UDPConn)) // "udp" gives these
	return nil
}

func inUse(at string, err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("the cluster's DNS cannot listen at %s: another process does, or listens at this port of all addresses "+
			"(another node? a name server such as dnsmasq, which takes bind-interfaces?): have it listen elsewhere, give this node another --service-cidr, or set --dns-server disabled: %w", at, err)
	}
	return fmt.Errorf("the cluster's DNS cannot listen at %s: %w", at, err)
}

// freebind lets a socket be bound to an address that the host does not have yet, or has not for a moment.
func freebind(a netip.Addr) func(network, at string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		level, option := unix.SOL_IP, unix.IP_FREEBIND
		if a.Is6() {
			level, option = unix.SOL_IPV6, unix.IPV6_FREEBIND
		}
		if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }); e != nil {
			return e
		}
		return err
	}
}

// Addr is the first address and port that are listened at.
func (s *Server) Addr() netip.AddrPort {
	return s.packets[0].LocalAddr().(*net.UDPAddr).AddrPort()
}

// readers is how many goroutines read from one UDP socket.
func readers() int { return min(4, runtime.GOMAXPROCS(0)) }

// Run answers until ctx ends, which is no error. When it returns nothing of the server is at work, and its sockets are closed.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, s.Close)
	defer stop()
	for _, p := range s.packets {
		for range readers() {
			s.tasks.Go(func() { s.readPackets(ctx, p) })
		}
	}
	for _, l := range s.streams {
		s.tasks.Go(func() { s.accept(ctx, l) })
	}
	<-ctx.Done()
	s.Close()
	s.tasks.Wait()
	return nil
}

// Close closes the sockets.
func (s *Server) Close() {
	for _, p := range s.packets {
		_ = p.Close() // it was closed, or is then
	}
	for _, l := range s.streams {
		_ = l.Close()
	}
}

// readPackets answers what comes over UDP.
func (s *Server) readPackets(ctx context.Context, conn *net.UDPConn) {
	buffer := make([]byte, message.MaxQuery)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			continue // the error is of an earlier reply, whose client is gone
		}
		send := func(reply []byte) {
			if _, err := conn.WriteToUDPAddrPort(reply, from); err != nil && ctx.Err() == nil {
				s.log.Debug("a reply could not be sent", "to", from, "error", err)
			}
		}
		s.handle(buffer[:n], from.Addr().Unmap(), func(q *message.Query) int { return q.Limit }, send, func(slow func(context.Context)) {
			s.tasks.Go(func() { slow(ctx) })
		})
	}
}
