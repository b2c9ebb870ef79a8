package links

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
)

// localnet is the way from the host's loopback addresses to the sandboxes, and back: net.ipv4.conf.IF.route_localnet of the host's ends. By it the host reaches host ports
// at 127.0.0.1. It is open only while the guard (network/rules, table.go) is there, which keeps sandboxes from going that way themselves.
type localnet struct {
	mu   sync.Mutex
	open bool
	// known: all ends are as open says. Those that an earlier process has left need not be.
	known bool
}

// keep calls f with whether the way is open, which does not change meanwhile: an end that is made while it is shut is not left open.
func (l *localnet) keep(f func(open bool) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return f(l.open)
}

// localnetRequest is about the end of this index.
func localnetRequest(index int, open bool) request {
	q := linkRequest("set route_localnet", unix.RTM_NEWLINK, 0, index, 0, nlsock.Nested(unix.IFLA_AF_SPEC, localnetOf(open)))
	q.MayBeGone = true
	return q
}

func localnetOf(open bool) *nl.RtAttr {
	const routeLocalnet = 26 // IPV4_DEVCONF_ROUTE_LOCALNET of linux/ip.h
	value := 0
	if open {
		value = 1
	}
	return nlsock.Nested(unix.AF_INET, nlsock.Nested(unix.IFLA_INET_CONF, nlsock.Attr32(routeLocalnet, value)))
}

// RouteLocalnet opens the way to the host's loopback addresses for all, or shuts it.
func (p *Pairs) RouteLocalnet(open bool) error {
	l := &p.localnet
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known && l.open == open {
		return nil
	}
	l.open, l.known = open, false
	ends, err := p.ends()
	if err != nil {
		return fmt.Errorf("network: the way to the host's loopback addresses: %w", err)
	}
	const together = 64 // the kernel's answers are to fit into the socket's buffer
	for part := range slices.Chunk(ends, together) {
		var reqs []request
		for _, index := range part {
			reqs = append(reqs, localnetRequest(index, open))
		}
		if err := p.rt.Do(reqs...); err != nil {
			return fmt.Errorf("network: the way to the host's loopback addresses: %w", err)
		}
	}
	if !open {
		// Sockets remember where their packets may come from.
		if err := os.WriteFile("/proc/sys/net/ipv4/route/flush", []byte("1\n"), 0); err != nil && !IsReadOnly(err) && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("network: the way to the host's loopback addresses: %w", err)
		}
	}
	l.known = true
	return nil
}

// ends are the indexes of the host's ends of all sandboxes' interfaces.
func (p *Pairs) ends() (all []int, err error) {
	q := linkRequest("list the interfaces", unix.RTM_GETLINK, unix.NLM_F_DUMP, 0, 0, nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(rtextFilterSkipStats)))
	ours := p.network.PortGroup()
	err = p.rt.Dump(q, func(body []byte) {
		if len(body) < unix.SizeofIfInfomsg {
			return
		}
		index := int(int32(binary.NativeEndian.Uint32(body[4:])))
		nlsock.EachAttr(body[unix.SizeofIfInfomsg:], func(typ uint16, data []byte) {
			if typ == unix.IFLA_GROUP && len(data) == 4 && binary.NativeEndian.Uint32(data) == ours {
				all = append(all, index)
			}
		})
	})
	return all, err
}
