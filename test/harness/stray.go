package harness

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// tcpRepair is TCP_REPAIR of linux/tcp.h, with what a socket is asked for in that mode.
const (
	tcpRepair, tcpRepairQueue, tcpQueueSeq = 19, 20, 21
	receiveQueue, sendQueue                = 1, 2
)

// Stray sends a segment far beyond the window into a connection of IPv4, as if this end of it had sent it. The connection itself knows nothing of it. path is the
// network namespace of this end; empty: that of the calling thread. Connection tracking takes such a segment for invalid.
func Stray(t testing.TB, path string, c net.Conn) {
	t.Helper()
	from, to := netip.MustParseAddrPort(c.LocalAddr().String()), netip.MustParseAddrPort(c.RemoteAddr().String())
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var send, receive uint32
	var inner error
	err = raw.Control(func(fd uintptr) {
		number := func(queue int) uint32 {
			if inner != nil {
				return 0
			}
			if inner = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpRepairQueue, queue); inner != nil {
				return 0
			}
			n, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpQueueSeq)
			inner = err
			return uint32(n)
		}
		if inner = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpRepair, 1); inner == nil {
			send, receive = number(sendQueue), number(receiveQueue)
			if err := unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpRepair, -1); inner == nil {
				inner = err
			}
		}
	})
	if err != nil || inner != nil {
		t.Fatalf("sequence numbers of a connection: %v %v", err, inner)
	}
	segment := make([]byte, 21)
	binary.BigEndian.PutUint16(segment, from.Port())
	binary.BigEndian.PutUint16(segment[2:], to.Port())
	binary.BigEndian.PutUint32(segment[4:], send+1<<30)
	binary.BigEndian.PutUint32(segment[8:], receive)
	segment[12], segment[13] = 5<<4, 0x18 // five words of header; PSH and ACK
	binary.BigEndian.PutUint16(segment[14:], 500)
	segment[20] = 'x'
	source, destination := from.Addr().As4(), to.Addr().As4()
	binary.BigEndian.PutUint16(segment[16:], checksum(source[:], destination[:], []byte{0, unix.IPPROTO_TCP, 0, byte(len(segment))}, segment))
	at := func(f func() error) error { return f() }
	if path != "" {
		at = func(f func() error) error { return InNetNS(path, f) }
	}
	err = at(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: source}); err != nil {
			return err
		}
		err = unix.Sendto(fd, segment, 0, &unix.SockaddrInet4{Addr: destination})
		if errors.Is(err, unix.EPERM) { // this end's own firewall has dropped it
			err = nil
		}
		return err
	})
	if err != nil {
		t.Fatal(fmt.Errorf("send a stray segment: %w", err))
	}
}

// checksum is the internet's (RFC 1071) of parts of which all but the last have an even number of bytes.
func checksum(parts ...[]byte) uint16 {
	var sum uint32
	for _, p := range parts {
		for i, b := range p {
			if i%2 == 0 {
				sum += uint32(b) << 8
			} else {
				sum += uint32(b)
			}
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
