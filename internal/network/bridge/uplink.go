package bridge

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

// The uplink is the interface of the host's default route. It may come after the node has started, be replaced by another one (a laptop's), or get another MTU (a
// VPN, a tunnel): packets of pods that are larger would be split, or lost where that is forbidden. So the bridge and all pods have its MTU, at any time.

// uplinkWatcher hears of default routes that come and go, of the uplink's changes, and of this network's own routes that go.
type uplinkWatcher struct {
	events *os.File
	done   chan struct{}
	// started: somebody reads the events.
	started bool
	// index is the uplink's, as it was last found.
	index atomic.Int64
}

// watchUplink begins to listen, in the network namespace of the calling thread.
func watchUplink() (*uplinkWatcher, error) {
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
	return &uplinkWatcher{events: os.NewFile(uintptr(fd), "events of routes"), done: make(chan struct{})}, nil
}

// follower is who follows what is heard.
type follower interface {
	// uplinkChanged is called when the uplink may be another one, or have another MTU.
	uplinkChanged()
	// needs says whether there is to be a route of this network to there.
	needs(to netip.Prefix) bool
	// routesGone is called when such a route has gone, or may have.
	routesGone()
}

// start has somebody follow what is heard.
func (w *uplinkWatcher) start(by follower) {
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
					routes = routes || ours && by.needs(gone)
				})
			}
			if concerned {
				by.uplinkChanged()
			}
			if routes {
				by.routesGone()
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

func (w *uplinkWatcher) close() {
	if w == nil {
		return
	}
	w.events.Close()
	if w.started {
		<-w.done
	}
}

// uplinkChanged has the bridge follow, where it is at work.
func (b *Bridge) uplinkChanged() {
	b.hostMu.Lock()
	defer b.hostMu.Unlock()
	if !b.watcher.Active() {
		return
	}
	if err := b.followUplink(); err != nil {
		b.log.Error("pods have not the MTU of the host's network", "error", err)
	}
}

// followUplink gives the bridge, if there is one, and all that is connected to it the MTU of the uplink. It is called with the lock of the host's settings held.
func (b *Bridge) followUplink() error {
	mtu, index := hostMTU(b.nl)
	b.uplink.index.Store(int64(index))
	bridge, found, err := b.rt.link(b.name)
	if err != nil || !found || bridge.mtu == mtu {
		return err
	}
	b.log.Info("pods get the MTU of the host's network", "mtu", mtu, "before", bridge.mtu)
	errs := []error{b.rt.Do(mtuRequest(bridge.index, mtu))}
	for id, rec := range b.ledger.All() {
		port, found, err := b.rt.link(rec.Interface)
		if err != nil || !found || rec.Leaving || port.mtu == mtu {
			continue
		}
		err = b.rt.Do(mtuRequest(port.index, mtu))
		if err == nil { // of a sandbox that this process has not met yet Reconcile takes care
			err = b.places.inside(id, func(inside *rtnl) error { return inside.Do(mtuRequest(port.peer, mtu)) })
		}
		if err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("network of sandbox %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// keepMTU gives the sandbox's end of a pair, which was made when the uplink may have had another one, its MTU.
func keepMTU(inside *rtnl, mtu int) error {
	eth0, found, err := inside.link(containerInterface)
	if err != nil || !found || eth0.mtu == mtu {
		return err
	}
	return inside.Do(mtuRequest(eth0.index, mtu))
}

func mtuRequest(index, mtu int) request {
	return linkRequest("set its MTU", unix.RTM_NEWLINK, 0, index, 0, nlsock.Attr32(unix.IFLA_MTU, mtu))
}
