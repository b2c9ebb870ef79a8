// Package nlsock sends several netlink requests with one system call, and hears all their answers with another. It is for what has to be fast, and for what
// package netlink does not know.
package nlsock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Socket is a netlink socket. The kernel works requests that come together off one after another, and has answered them all when the call that sends them
// returns. All methods are safe for concurrent use.
type Socket struct {
	mu     sync.Mutex
	fd     int
	portID uint32 // the kernel's name for the socket, among those of this protocol in its network namespace
	seq    uint32
}

// buffers are what datagrams are read into: as large as the kernel makes them.
var buffers = sync.Pool{New: func() any { return new(make([]byte, 64<<10)) }}

// Open opens a socket of this netlink protocol in the network namespace of the calling thread.
func Open(protocol int) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	r := &Socket{fd: fd}
	if name, err := unix.Getsockname(fd); err == nil {
		r.portID = name.(*unix.SockaddrNetlink).Pid
	}
	return r, nil
}

// PortID is the kernel's name for the socket.
func (r *Socket) PortID() uint32 { return r.portID }

// FD is the socket itself, to set its options.
func (r *Socket) FD() int { return r.fd }

// Close gives the socket back.
func (r *Socket) Close() { unix.Close(r.fd) }

// Request is one message: what it does, in words for an error, and what is sent.
type Request struct {
	What  string
	Type  uint16
	Flags uint16
	Body  []byte
	// IPv6: it is about IPv6, which the kernel or the interface may not have.
	IPv6 bool
	// MayBeGone: it is about an interface that need not be there.
	MayBeGone bool
}

// excuses says whether the Request may fail so.
func (q Request) excuses(errno unix.Errno) bool {
	return q.IPv6 && (errno == unix.EAFNOSUPPORT || errno == unix.EINVAL || errno == unix.EOPNOTSUPP) || q.MayBeGone && errno == unix.ENODEV
}

// serialize appends the Request with its header (netlink(7), struct nlmsghdr).
func (q Request) serialize(b []byte, seq uint32) []byte {
	h := make([]byte, unix.NLMSG_HDRLEN)
	binary.NativeEndian.PutUint32(h, uint32(unix.NLMSG_HDRLEN+len(q.Body)))
	binary.NativeEndian.PutUint16(h[4:], q.Type)
	binary.NativeEndian.PutUint16(h[6:], q.Flags|unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(h[8:], seq)
	b = append(append(b, h...), q.Body...)
	for len(b)%unix.NLMSG_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

// Do sends the requests together. Each is carried out; the errors are returned together.
func (r *Socket) Do(reqs ...Request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []byte
	first := r.seq + 1
	for _, q := range reqs {
		r.seq++
		q.Flags |= unix.NLM_F_ACK
		out = q.serialize(out, r.seq)
	}
	if err := r.send(out); err != nil {
		return err
	}
	var errs []error
	for open := len(reqs); open > 0; {
		err := r.Receive(func(typ uint16, seq uint32, body []byte) {
			if i := seq - first; typ == unix.NLMSG_ERROR && i < uint32(len(reqs)) && len(body) >= 4 {
				open--
				if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(body))); errno != 0 && !reqs[i].excuses(errno) {
					errs = append(errs, fmt.Errorf("%s: %w", reqs[i].What, errno))
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// Dump sends one Request and hands every message of the answer to f. With NLM_F_DUMP in its flags the answer ends with
// the kernel's mark for that, else it is one message.
func (r *Socket) Dump(q Request, f func(body []byte)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	if err := r.send(q.serialize(nil, r.seq)); err != nil {
		return err
	}
	var failed error
	for done := false; !done; {
		err := r.Receive(func(typ uint16, seq uint32, body []byte) {
			switch {
			case seq != r.seq:
			case typ == unix.NLMSG_DONE:
				done = true
			case typ == unix.NLMSG_ERROR:
				done = true
				if len(body) >= 4 {
					if errno := -int32(binary.NativeEndian.Uint32(body)); errno != 0 {
						failed = fmt.Errorf("%s: %w", q.What, unix.Errno(errno))
					}
				}
			default:
				f(body)
				done = q.Flags&unix.NLM_F_DUMP == 0
			}
		})
		if err != nil {
			return err
		}
	}
	return failed
}

func (r *Socket) send(out []byte) error {
	for {
		err := unix.Sendto(r.fd, out, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if err != unix.EINTR {
			if err != nil {
				return fmt.Errorf("netlink: %w", err)
			}
			return nil
		}
	}
}

// Receive reads one datagram and hands out its messages. The kernel has queued the answer before send returned, so this
// does not block but for the next part of a dump.
func (r *Socket) Receive(f func(typ uint16, seq uint32, body []byte)) error {
	return r.receiveWith(0, f)
}

// receiveWith is Receive with flags of recvfrom(2).
func (r *Socket) receiveWith(flags int, f func(typ uint16, seq uint32, body []byte)) error {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	n, _, err := unix.Recvfrom(r.fd, *buf, flags)
	if err == unix.EINTR {
		return nil
	}
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	return EachMessage((*buf)[:n], f)
}

// EachMessage hands out the messages of a datagram (netlink(7)).
func EachMessage(b []byte, f func(typ uint16, seq uint32, body []byte)) error {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return errors.New("netlink: a message of the kernel is cut short")
		}
		f(binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint32(b[8:]), b[unix.NLMSG_HDRLEN:size])
		b = b[min(len(b), (size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
	}
	return nil
}

// EachAttr hands out the attributes of a message (rtnetlink(7)).
func EachAttr(b []byte, f func(typ uint16, data []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofRtAttr:size])
		b = b[min(len(b), (size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
	}
}

// Attr32 is an attribute that holds a number of 32 bits, in the host's order.
func Attr32(typ int, v int) *nl.RtAttr {
	return nl.NewRtAttr(typ, nl.Uint32Attr(uint32(v)))
}

// Nested is an attribute made of others.
func Nested(typ int, of ...*nl.RtAttr) *nl.RtAttr {
	a := nl.NewRtAttr(typ, nil)
	for _, o := range of {
		a.AddChild(o)
	}
	return a
}
