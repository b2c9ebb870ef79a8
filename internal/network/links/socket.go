package links

import (
	"encoding/binary"
	"errors"
	"net"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
)

// Socket is a netlink socket, of route netlink mostly.
type Socket struct{ *nlsock.Socket }

type request = nlsock.Request

// OpenSocket opens a route netlink socket in the network namespace of the calling thread.
func OpenSocket() (*Socket, error) { return openNetlink(unix.NETLINK_ROUTE) }

// openNetlink opens a socket of this netlink protocol in the network namespace of the calling thread.
func openNetlink(protocol int) (*Socket, error) {
	s, err := nlsock.Open(protocol)
	if err != nil {
		return nil, err
	}
	return &Socket{s}, nil
}

// Info is what connecting a sandbox needs to know of an interface.
type Info struct {
	Index, Master, MTU int
	Peer               int // the index of a veth's other end, in its own namespace
	MAC                net.HardwareAddr
}

// rtextFilterSkipStats leaves the counters out of an answer (linux/rtnetlink.h).
const rtextFilterSkipStats = 1 << 3

// Link returns the interface of this name; found is false where there is none.
func (r *Socket) Link(name string) (info Info, found bool, err error) {
	q := linkRequest("look up "+name, unix.RTM_GETLINK, 0, 0, 0, attrName(name), nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(rtextFilterSkipStats)))
	err = r.Dump(q, func(body []byte) {
		if len(body) < unix.SizeofIfInfomsg {
			return
		}
		found = true
		info.Index = int(int32(binary.NativeEndian.Uint32(body[4:])))
		nlsock.EachAttr(body[unix.SizeofIfInfomsg:], func(typ uint16, data []byte) {
			if typ == unix.IFLA_ADDRESS {
				info.MAC = slices.Clone(data)
			}
			if len(data) != 4 {
				return
			}
			v := int(int32(binary.NativeEndian.Uint32(data)))
			switch typ {
			case unix.IFLA_MASTER:
				info.Master = v
			case unix.IFLA_MTU:
				info.MTU = v
			case unix.IFLA_LINK:
				info.Peer = v
			}
		})
	})
	if errors.Is(err, unix.ENODEV) {
		return Info{}, false, nil
	}
	return info, found, err
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
	return request{What: what, Type: typ, Flags: flags, Body: body}
}

func attrName(name string) *nl.RtAttr { return nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)) }
