package links

import (
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/network/lease"
)

// settleTime bounds how long Setup waits for what the kernel does by itself. It does it in well under a millisecond, as
// soon as nobody else holds the lock of all network devices.
const settleTime = 500 * time.Millisecond

// settling waits for two things that the kernel does a moment after it has answered: it finds that the pair's ends are
// connected (before that the bridge drops what comes), and makes an IPv6 address one to answer for. A packet that comes
// too early is lost, and is sent again a second later.
type settling struct {
	sock *Socket
	// What is waited for still.
	link      bool
	addresses map[netip.Addr]bool
}

// newSettling begins to listen, in the sandbox, before what it waits for is begun.
func newSettling(has []lease.Address) (*settling, error) {
	sock, err := OpenSocket()
	if err != nil {
		return nil, err
	}
	s := &settling{sock: sock, link: true, addresses: map[netip.Addr]bool{}}
	groups := []int{unix.RTNLGRP_LINK}
	for _, a := range has {
		if a.Address.Addr().Is6() {
			s.addresses[a.Address.Addr()] = true
		}
	}
	if len(s.addresses) > 0 {
		groups = append(groups, unix.RTNLGRP_IPV6_ROUTE)
	}
	for _, g := range groups {
		if err := unix.SetsockoptInt(sock.FD(), unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g); err != nil {
			sock.Close()
			return nil, err
		}
	}
	limit := unix.NsecToTimeval(settleTime.Nanoseconds())
	if err := unix.SetsockoptTimeval(sock.FD(), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		sock.Close()
		return nil, err
	}
	return s, nil
}

// wait returns when all has come, or after settleTime: nothing is wrong then but that it is slow.
func (s *settling) wait(index int) {
	for end := time.Now().Add(settleTime); (s.link || len(s.addresses) > 0) && time.Now().Before(end); {
		err := s.sock.Receive(func(typ uint16, _ uint32, body []byte) {
			switch {
			case typ == unix.RTM_NEWLINK && len(body) >= unix.SizeofIfInfomsg && int(binary.NativeEndian.Uint32(body[4:])) == index:
				const up = 6 // IF_OPER_UP
				nlsock.EachAttr(body[unix.SizeofIfInfomsg:], func(typ uint16, data []byte) {
					if typ == unix.IFLA_OPERSTATE && len(data) == 1 && data[0] == up {
						s.link = false
					}
				})
			case typ == unix.RTM_NEWROUTE && len(body) >= unix.SizeofRtMsg && body[7] == unix.RTN_LOCAL:
				nlsock.EachAttr(body[unix.SizeofRtMsg:], func(typ uint16, data []byte) {
					if a, ok := netip.AddrFromSlice(data); ok && typ == unix.RTA_DST {
						delete(s.addresses, a)
					}
				})
			}
		})
		if err != nil {
			return
		}
	}
}
