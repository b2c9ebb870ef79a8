package upstream

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"monopod.dev/monopod/internal/dns/message"
)

// exchange asks one server: over UDP, and over TCP when the answer does not fit there. Each question has a socket of its own, so that its port is
// a guess for who would answer in the server's place, as its id is.
func exchange(ctx context.Context, server netip.AddrPort, q *message.Query) (*message.Foreign, error) {
	var seed [2]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, err
	}
	id := binary.BigEndian.Uint16(seed[:])
	ask, err := q.Ask(id)
	if err != nil {
		return nil, fmt.Errorf("question %s: %w", q.Question.Name, err)
	}
	reply, err := overUDP(ctx, server, q, id, ask)
	if err != nil {
		return nil, err
	}
	if reply != nil {
		return reply, nil
	}
	return overTCP(ctx, server, q, id, ask)
}

// maxDatagram is what is read of a datagram: some servers send more than they were asked for.
const maxDatagram = 4096

// overUDP returns no reply and no error when the server has to be asked over TCP.
func overUDP(ctx context.Context, server netip.AddrPort, q *message.Query, id uint16, ask []byte) (*message.Foreign, error) {
	conn, err := dial(ctx, "udp", server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := conn.Write(ask); err != nil {
		return nil, err
	}
	buffer := make([]byte, maxDatagram)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return nil, err
		}
		if reply, err := message.ReadForeign(buffer[:n], q, id); err == nil {
			if message.Truncated(buffer[:n]) || n == len(buffer) {
				return nil, nil // see above
			}
			return reply, nil
		}
		// It is no reply to this question: somebody may be guessing. The real one may come still.
	}
}

func overTCP(ctx context.Context, server netip.AddrPort, q *message.Query, id uint16, ask []byte) (*message.Foreign, error) {
	conn, err := dial(ctx, "tcp", server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(ask))), ask...)); err != nil { // a question is short
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	raw := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, raw); err != nil {
		return nil, err
	}
	return message.ReadForeign(raw, q, id)
}

func dial(ctx context.Context, network string, server netip.AddrPort) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(serverTime)
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	// Who ends ends this, too.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return &cancelled{conn, stop}, nil
}

// cancelled is a connection that a context ends.
type cancelled struct {
	net.Conn
	stop func() bool
}

func (c *cancelled) Close() error {
	c.stop()
	return c.Conn.Close()
}
