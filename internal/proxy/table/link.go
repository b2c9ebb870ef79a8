package table

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/host/ruleset"
)

// siteNow looks where on the host it is.
func (t *Table) siteNow(ranges []netip.Prefix) site {
	s := site{bridge: t.cfg.Bridge.Name, group: t.cfg.Bridge.PortGroup, bridges: t.cfg.Bridge.Group, ranges: ranges, guards: t.cfg.Guards}
	if s.bridge != "" && t.unbridged == nil {
		s.mac = t.bridgeMAC()
	}
	return s
}

// bridgeMAC is the bridge's hardware address; nil: there is no bridge yet.
func (t *Table) bridgeMAC() (mac net.HardwareAddr) {
	body := append(nl.NewIfInfomsg(unix.AF_UNSPEC).Serialize(), nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(t.cfg.Bridge.Name)).Serialize()...)
	_ = t.routes.Dump(nlsock.Request{What: "look up " + t.cfg.Bridge.Name, Type: unix.RTM_GETLINK, Body: body}, func(body []byte) {
		_, mac = linkOf(body)
	}) // its coming is told
	return mac
}

// HostAddresses are those that the host has, but for loopback ones.
func (t *Table) HostAddresses() map[netip.Addr]bool {
	all, err := ruleset.LocalAddresses(t.routes)
	if err != nil {
		t.log.Error("the addresses of the host are not known", "error", err)
	}
	maps.DeleteFunc(all, func(a netip.Addr, _ bool) bool { return a.IsLoopback() })
	return all
}

// linkOf reads name and hardware address of an interface.
func linkOf(body []byte) (name string, mac net.HardwareAddr) {
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

// bridgeChanged is told of each interface that comes or changes, or with no name that something was lost.
func (t *Table) bridgeChanged(name string, mac net.HardwareAddr) {
	if name == "" {
		name, mac = t.cfg.Bridge.Name, t.bridgeMAC()
	}
	if name != t.cfg.Bridge.Name || len(mac) != 6 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shape == nil || t.unbridged != nil || bytes.Equal(mac, t.site.mac) {
		return
	}
	t.site.mac = mac
	t.shape = shapeOf(t.site)
	if err := t.sync(); err != nil {
		t.log.Error("the rules of services do not fit the bridge", "bridge", name, "error", err)
	}
}

// linkWatcher tells of interfaces that come or change.
type linkWatcher struct {
	events *os.File
	done   chan struct{}
}

// watchLinks begins to listen, in the network namespace of the calling thread.
func watchLinks(tell func(name string, mac net.HardwareAddr)) (*linkWatcher, error) {
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
	w := &linkWatcher{events: os.NewFile(uintptr(fd), "interface events"), done: make(chan struct{})}
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
					tell(linkOf(body))
				}
			})
		}
	}()
	return w, nil
}

func (w *linkWatcher) close() {
	w.events.Close()
	<-w.done
}
