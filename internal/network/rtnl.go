package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// rtnl is a netlink socket, of route netlink mostly, that sends several requests at once: the kernel works them off one after another, goes
// on after one that fails, and has answered them all when the call that sends them returns. All methods are safe for
// concurrent use.
//
// It is beside package netlink because that one sends a request at a time, and looks up by name what it has just made.
type rtnl struct {
	mu     sync.Mutex
	fd     int
	portID uint32 // the kernel's name for the socket, among those of this protocol in its network namespace
	seq    uint32
}

// buffers are what datagrams are read into: as large as the kernel makes them.
var buffers = sync.Pool{New: func() any { return new(make([]byte, 64<<10)) }}

// openRTNL opens a route netlink socket in the network namespace of the calling thread.
func openRTNL() (*rtnl, error) { return openNetlink(unix.NETLINK_ROUTE) }

// openNetlink opens a socket of this netlink protocol in the network namespace of the calling thread.
func openNetlink(protocol int) (*rtnl, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	r := &rtnl{fd: fd}
	if name, err := unix.Getsockname(fd); err == nil {
		r.portID = name.(*unix.SockaddrNetlink).Pid
	}
	return r, nil
}

func (r *rtnl) close() { unix.Close(r.fd) }

// request is one message: what it does, in words for an error, and what is sent.
type request struct {
	what  string
	typ   uint16
	flags uint16
	body  []byte
	// ipv6: it is about IPv6, which the kernel or the interface may not have.
	ipv6 bool
	// mayBeGone: it is about an interface that need not be there.
	mayBeGone bool
}

// excuses says whether the request may fail so.
func (q request) excuses(errno unix.Errno) bool {
	return q.ipv6 && (errno == unix.EAFNOSUPPORT || errno == unix.EINVAL || errno == unix.EOPNOTSUPP) || q.mayBeGone && errno == unix.ENODEV
}

// serialize appends the request with its header (netlink(7), struct nlmsghdr).
func (q request) serialize(b []byte, seq uint32) []byte {
	h := make([]byte, unix.NLMSG_HDRLEN)
	binary.NativeEndian.PutUint32(h, uint32(unix.NLMSG_HDRLEN+len(q.body)))
	binary.NativeEndian.PutUint16(h[4:], q.typ)
	binary.NativeEndian.PutUint16(h[6:], q.flags|unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(h[8:], seq)
	b = append(append(b, h...), q.body...)
	for len(b)%unix.NLMSG_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

// do sends the requests together. Each is carried out; the errors are returned together.
func (r *rtnl) do(reqs ...request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []byte
	first := r.seq + 1
	for _, q := range reqs {
		r.seq++
		q.flags |= unix.NLM_F_ACK
		out = q.serialize(out, r.seq)
	}
	if err := r.send(out); err != nil {
		return err
	}
	var errs []error
	for open := len(reqs); open > 0; {
		err := r.receive(func(typ uint16, seq uint32, body []byte) {
			if i := seq - first; typ == unix.NLMSG_ERROR && i < uint32(len(reqs)) && len(body) >= 4 {
				open--
				if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(body))); errno != 0 && !reqs[i].excuses(errno) {
					errs = append(errs, fmt.Errorf("%s: %w", reqs[i].what, errno))
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// dump sends one request and hands every message of the answer to f. With NLM_F_DUMP in its flags the answer ends with
// the kernel's mark for that, else it is one message.
func (r *rtnl) dump(q request, f func(body []byte)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	if err := r.send(q.serialize(nil, r.seq)); err != nil {
		return err
	}
	var failed error
	for done := false; !done; {
		err := r.receive(func(typ uint16, seq uint32, body []byte) {
			switch {
			case seq != r.seq:
			case typ == unix.NLMSG_DONE:
				done = true
			case typ == unix.NLMSG_ERROR:
				done = true
				if len(body) >= 4 {
					if errno := -int32(binary.NativeEndian.Uint32(body)); errno != 0 {
						failed = fmt.Errorf("%s: %w", q.what, unix.Errno(errno))
					}
				}
			default:
				f(body)
				done = q.flags&unix.NLM_F_DUMP == 0
			}
		})
		if err != nil {
			return err
		}
	}
	return failed
}

func (r *rtnl) send(out []byte) error {
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

// receive reads one datagram and hands out its messages. The kernel has queued the answer before send returned, so this
// does not block but for the next part of a dump.
func (r *rtnl) receive(f func(typ uint16, seq uint32, body []byte)) error { return r.receiveWith(0, f) }

// receiveWith is receive with flags of recvfrom(2).
func (r *rtnl) receiveWith(flags int, f func(typ uint16, seq uint32, body []byte)) error {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	n, _, err := unix.Recvfrom(r.fd, *buf, flags)
	if err == unix.EINTR {
		return nil
	}
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	return eachMessage((*buf)[:n], f)
}

// eachMessage hands out the messages of a datagram (netlink(7)).
func eachMessage(b []byte, f func(typ uint16, seq uint32, body []byte)) error {
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

// linkInfo is what connecting a sandbox needs to know of an interface.
type linkInfo struct {
	index, master, mtu int
	peer               int // the index of a veth's other end, in its own namespace
	mac                net.HardwareAddr
}

// rtextFilterSkipStats leaves the counters out of an answer (linux/rtnetlink.h).
const rtextFilterSkipStats = 1 << 3

// link returns the interface of this name; found is false where there is none.
func (r *rtnl) link(name string) (info linkInfo, found bool, err error) {
	q := linkRequest("look up "+name, unix.RTM_GETLINK, 0, 0, 0, attrName(name), nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(rtextFilterSkipStats)))
	err = r.dump(q, func(body []byte) {
		if len(body) < unix.SizeofIfInfomsg {
			return
		}
		found = true
		info.index = int(int32(binary.NativeEndian.Uint32(body[4:])))
		eachAttr(body[unix.SizeofIfInfomsg:], func(typ uint16, data []byte) {
			if typ == unix.IFLA_ADDRESS {
				info.mac = slices.Clone(data)
			}
			if len(data) != 4 {
				return
			}
			v := int(int32(binary.NativeEndian.Uint32(data)))
			switch typ {
			case unix.IFLA_MASTER:
				info.master = v
			case unix.IFLA_MTU:
				info.mtu = v
			case unix.IFLA_LINK:
				info.peer = v
			}
		})
	})
	if errors.Is(err, unix.ENODEV) {
		return linkInfo{}, false, nil
	}
	return info, found, err
}

// eachAttr hands out the attributes of a message (rtnetlink(7)).
func eachAttr(b []byte, f func(typ uint16, data []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofRtAttr:size])
		b = b[min(len(b), (size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
	}
}

// linkRequest is a message about an interface, by its index, or with index 0 by the name among the attributes. ifFlags
// are set, and no others changed.
func linkRequest(what string, typ, flags uint16, index int, ifFlags uint32, attrs ...*nl.RtAttr) request {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index, msg.Flags, msg.Change = int32(index), ifFlags, ifFlags
	body := msg.Serialize()
	for _, a := range attrs {
		body = append(body, a.Serialize()...)
	}
	return request{what: what, typ: typ, flags: flags, body: body}
}

func attrName(name string) *nl.RtAttr { return nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)) }
func attr32(typ int, v int) *nl.RtAttr {
	return nl.NewRtAttr(typ, nl.Uint32Attr(uint32(v)))
}

// nested is an attribute made of others.
func nested(typ int, of ...*nl.RtAttr) *nl.RtAttr {
	a := nl.NewRtAttr(typ, nil)
	for _, o := range of {
		a.AddChild(o)
	}
	return a
}
