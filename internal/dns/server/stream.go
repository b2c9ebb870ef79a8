package server

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"monopod.dev/monopod/internal/dns/message"
	"monopod.dev/monopod/internal/kit/wait"
)

// How long a TCP connection may be idle (RFC 7766, section 6.2.3), and how long a client has to take a reply.
const (
	idleTime  = 10 * time.Second
	writeTime = 5 * time.Second
)

// acceptPause is between attempts to take a connection: out of file descriptors, say.
const acceptPause = 100 * time.Millisecond

// accept takes TCP connections, as many as there are places for.
func (s *Server) accept(ctx context.Context, l *net.TCPListener) {
	for {
		conn, err := l.AcceptTCP()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			s.log.Warn("a connection could not be accepted", "error", err)
			if wait.For(ctx, acceptPause) != nil {
				return
			}
			continue
		}
		client := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		if !s.connections.take(client) {
			_ = conn.SetLinger(0)
			_ = conn.Close() // who has the places may have them
			continue
		}
		s.tasks.Go(func() {
			defer s.connections.give(client)
			s.serve(ctx, conn, client)
		})
	}
}

// serve answers the queries of a connection, one after another.
func (s *Server) serve(ctx context.Context, conn *net.TCPConn, client netip.Addr) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer conn.Close()
	size := make([]byte, 2)
	for {
		if conn.SetReadDeadline(time.Now().Add(idleTime)) != nil {
			return
		}
		if _, err := io.ReadFull(conn, size); err != nil {
			return // it has ended, or is idle
		}
		n := int(binary.BigEndian.Uint16(size))
		if n > message.MaxQuery {
			return
		}
		raw := make([]byte, n)
		if _, err := io.ReadFull(conn, raw); err != nil {
			return
		}
		sent := false
		send := func(reply []byte) {
			framed := append(binary.BigEndian.AppendUint16(make([]byte, 0, len(reply)+2), uint16(len(reply))), reply...) // at most 65535
			if conn.SetWriteDeadline(time.Now().Add(writeTime)) != nil {
				return
			}
			_, err := conn.Write(framed)
			sent = err == nil
		}
		s.handle(raw, client, func(*message.Query) int { return message.MaxTCP }, send, func(slow func(context.Context)) { slow(ctx) })
		if !sent {
			return
		}
	}
}
