// Package sockdiag asks the kernel whose sockets are at the other ends of local connections.
//
// It guarantees that an answer is about a socket that a process has open: the kernel says of what nobody holds any more that it is root's.
package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"unsafe"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Table looks sockets up in the network namespace of the thread that made it. It is safe for concurrent use.
type Table struct {
	mu sync.Mutex
	fd int // netlink, NETLINK_SOCK_DIAG; -1: closed
}

// Open makes a Table.
func Open() (*Table, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("socket of sock_diag: %w", err)
	}
	return &Table{fd: fd}, nil
}

// Close gives the socket to the kernel back.
func (t *Table) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fd < 0 {
		return nil
	}
	err := unix.Close(t.fd)
	t.fd = -1
	return err
}

// TCPOwner is the user who has made the TCP socket with this address of its own and this one at the other end. It is
// errdefs.ErrNotFound where there is none that a process has open.
func (t *Table) TCPOwner(own, other netip.AddrPort) (uid uint32, err error) {
	own, other = unmap(own), unmap(other)
	t.mu.Lock()
	defer t.mu.Unlock()
	answer, err := t.ask(request(own, other))
	if errors.Is(err, unix.ENOENT) || err == nil && answer.inode == 0 {
		return 0, fmt.Errorf("no process has a socket from %s to %s: %w", own, other, errdefs.ErrNotFound)
	}
	if err != nil {
		return 0, fmt.Errorf("sock_diag of %s to %s: %w", own, other, err)
	}
	return answer.uid, nil
}

// unmap makes an IPv4 address of one that is written as IPv6: the socket of who connects by IPv4 is one of IPv4.
func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// What linux/inet_diag.h and linux/sock_diag.h lay down.
const (
	diagByFamily = 20 // SOCK_DIAG_BY_FAMILY
	requestSize  = unix.NLMSG_HDRLEN + 8 + idSize
	idSize       = 48 // struct inet_diag_sockid
	answerSize   = 4 + idSize + 20
	anyState     = 0xffffffff
)

// request is an inet_diag_req_v2 for one socket, with its header.
func request(own, other netip.AddrPort) []byte {
	b := make([]byte, requestSize)
	family := byte(unix.AF_INET)
	if own.Addr().Is6() {
		family = unix.AF_INET6
	}
	native := binary.NativeEndian
	native.PutUint32(b, requestSize)
	native.PutUint16(b[4:], diagByFamily)
	native.PutUint16(b[6:], unix.NLM_F_REQUEST)
	body := b[unix.NLMSG_HDRLEN:]
	body[0], body[1] = family, unix.IPPROTO_TCP
	native.PutUint32(body[4:], anyState)
	id := body[8:]
	binary.BigEndian.PutUint16(id, own.Port())
	binary.BigEndian.PutUint16(id[2:], other.Port())
	copy(id[4:20], own.Addr().AsSlice())
	copy(id[20:36], other.Addr().AsSlice())
	for i := 40; i < idSize; i++ {
		id[i] = 0xff // INET_DIAG_NOCOOKIE
	}
	return b
}

type answer struct{ uid, inode uint32 }

// ask sends a request and reads its answer. An error of the kernel is a unix.Errno.
func (t *Table) ask(req []byte) (a answer, err error) {
	if t.fd < 0 {
		return a, unix.EBADF
	}
	if err := unix.Sendto(t.fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return a, err
	}
	var buf [1 << 10]byte
	for {
		n, from, err := unix.Recvfrom(t.fd, buf[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return a, err
		}
		if nl, ok := from.(*unix.SockaddrNetlink); !ok || nl.Pid != 0 {
			continue // not the kernel's
		}
		return parse(buf[:n])
	}
}

// parse reads one message of the kernel's: an inet_diag_msg, or an error.
func parse(msg []byte) (a answer, err error) {
	native := binary.NativeEndian
	if len(msg) < unix.NLMSG_HDRLEN+int(unsafe.Sizeof(int32(0))) {
		return a, unix.EBADMSG
	}
	body := msg[unix.NLMSG_HDRLEN:]
	switch kind := native.Uint16(msg[4:]); {
	case kind == unix.NLMSG_ERROR:
		if code := int32(native.Uint32(body)); code < 0 {
			return a, unix.Errno(-code)
		}
		return a, unix.EBADMSG
	case kind != diagByFamily || len(body) < answerSize:
		return a, unix.EBADMSG
	}
	counters := body[4+idSize:] // expires, rqueue, wqueue, uid, inode
	return answer{uid: native.Uint32(counters[12:]), inode: native.Uint32(counters[16:])}, nil
}
