package links

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
)

// Watcher hears of default routes that come and go, of the uplink's changes, and of this network's own routes that go.
type Watcher struct {
	events *os.File
	done   chan struct{}
	// started: somebody reads the events.
	started bool
	// index is the uplink's, as it was last found.
	index atomic.Int64
}

// Watch begins to listen, in the network namespace of the calling thread.
func Watch() (*Watcher, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	for _, group := range []int{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE} {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("netlink socket for events of routes: %w", err)
	}
	return &Watcher{events: os.NewFile(uintptr(fd), "events of routes"), done: make(chan struct{})}, nil
}

// Follower is who follows what is heard. Its methods are called one after another.
type Follower interface {
	// UplinkChanged is called when the uplink may be another one, or have another MTU.
	UplinkChanged()
	// Needs says whether there is to be a route of this network to there.
	Needs(to netip.Prefix) bool
	// RoutesGone is called when such a route has gone, or may have.
	RoutesGone()
}

// Start has somebody follow what is heard.
func (w *Watcher) Start(by Follower) {
	w.started = true
	go func() {
		defer close(w.done)
		buf := make([]byte, 64<<10)
		for {
			n, err := w.events.Read(buf)
			lost := errors.Is(err, unix.ENOBUFS)
			if err != nil && !lost { // closed
				return
			}
			concerned, routes := lost, lost
			if !lost {
				_ = nlsock.EachMessage(buf[:n], func(typ uint16, _ uint32, body []byte) {
					concerned = concerned || ofUplink(typ, body, int(w.index.Load()))
					gone, ours := ownRouteGone(typ, body)
					routes = routes || ours && by.Needs(gone)
				})
			}
			if concerned {
				by.UplinkChanged()
			}
			if routes {
				by.RoutesGone()
			}
		}
	}()
}

// ofUplink says whether a message is about the uplink of this index, or a default route. It is pure.
func ofUplink(typ uint16, body []byte, index int) bool {
	switch typ {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return len(body) >= unix.SizeofIfInfomsg && index != 0 && int(int32(binary.NativeEndian.Uint32(body[4:]))) == index
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return len(body) >= unix.SizeofRtMsg && body[1] == 0 // rtm_dst_len
	}
	return false
}

// Follow says which interface is the uplink, by its index, as it was found; 0: there is none.
func (w *Watcher) Follow(index int) { w.index.Store(int64(index)) }

// Close ends it. A nil Watcher has ended.
func (w *Watcher) Close() {
	if w == nil {
		return
	}
	w.events.Close()
	if w.started {
		<-w.done
	}
}
