package ruleset

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
)

// LinkOf reads name and hardware address of an interface.
func LinkOf(body []byte) (name string, mac net.HardwareAddr) {
	if len(body) < unix.SizeofIfInfomsg {
		return "", nil
	}
	nlsock.EachAttr(body[unix.SizeofIfInfomsg:], func(typ uint16, data []byte) {
		switch typ {
		case unix.IFLA_IFNAME:
			name = nl.BytesToString(data)
		case unix.IFLA_ADDRESS:
			mac = slices.Clone(data)
		}
	})
	return name, mac
}

// LinkWatcher tells of interfaces that come or change.
type LinkWatcher struct {
	events *os.File
	done   chan struct{}
}

// WatchLinks begins to listen, in the network namespace of the calling thread: tell gets name and hardware address of each interface that comes or changes, and no name where something was
// lost.
func WatchLinks(tell func(name string, mac net.HardwareAddr)) (*LinkWatcher, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	if err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.RTNLGRP_LINK)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("netlink socket for events of interfaces: %w", err)
	}
	w := &LinkWatcher{events: os.NewFile(uintptr(fd), "interface events"), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		buf := make([]byte, 64<<10)
		for {
			n, err := w.events.Read(buf)
			if errors.Is(err, unix.ENOBUFS) {
				tell("", nil) // something was lost
				continue
			}
			if err != nil { // closed
				return
			}
			_ = nlsock.EachMessage(buf[:n], func(typ uint16, _ uint32, body []byte) {
				if typ == unix.RTM_NEWLINK {
					tell(LinkOf(body))
				}
			})
		}
	}()
	return w, nil
}

// Close returns when nothing is told any more.
func (w *LinkWatcher) Close() {
	w.events.Close()
	<-w.done
}
