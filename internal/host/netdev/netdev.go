// Package netdev looks at network interfaces of network namespaces, and moves them back to this process's own, with their addresses.
//
// A network namespace that ends gives physical interfaces back to the host's first one, under the names that they have by then, and takes virtual
// ones with it. Who has moved one there takes it back before that.
package netdev

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ns"
)

// Has says whether the network namespace at the path has an interface of that name.
func Has(path, name string) (has bool, err error) {
	err = inside(path, func(h *netlink.Handle) error {
		_, has, err = find(h, name)
		return err
	})
	return has, err
}

// Up says whether an interface of this process's network namespace is up; one that is not there is not.
func Up(name string) (bool, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return false, fmt.Errorf("netlink socket: %w", err)
	}
	defer h.Close()
	link, has, err := find(h, name)
	return has && link.Attrs().Flags&net.FlagUp != 0, err
}

// Return moves the interface called name in the network namespace at the path to this process's, where it is called as, and gives it its addresses
// again: the permanent ones of global scope, which the kernel drops. One that is not there any more is no error. Where as is taken,
// the error is an errdefs.ErrAlreadyExists, and nothing has changed but that the interface is down.
func Return(path, name, as string, up bool) error {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	var addresses []netlink.Addr
	moved := false
	err = inside(path, func(h *netlink.Handle) error {
		link, has, err := find(h, name)
		if err != nil || !has {
			return err
		}
		if addresses, err = h.AddrList(link, netlink.FAMILY_ALL); err != nil {
			return fmt.Errorf("its addresses: %w", err)
		}
		if err := h.LinkSetDown(link); err != nil {
			return fmt.Errorf("set it down: %w", err)
		}
		moved = true
		return move(link.Attrs().Index, as, int(home.Fd()))
	})
	if err != nil || !moved {
		return named(name, err)
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return named(name, err)
	}
	defer h.Close()
	link, err := h.LinkByName(as)
	if err != nil {
		return named(name, err)
	}
	var errs []error
	for _, a := range addresses {
		if a.Flags&unix.IFA_F_PERMANENT != 0 && a.Scope == unix.RT_SCOPE_UNIVERSE {
			errs = append(errs, h.AddrAdd(link, &netlink.Addr{IPNet: a.IPNet}))
		}
	}
	if up {
		errs = append(errs, h.LinkSetUp(link))
	}
	return named(name, errors.Join(errs...))
}

func named(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("network interface %s: %w", name, err)
}

// inside calls f with a socket of the network namespace at the path, on a thread in it.
func inside(path string, f func(h *netlink.Handle) error) error {
	return ns.Run(path, ns.Network, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("netlink socket: %w", err)
		}
		defer h.Close()
		return f(h)
	})
}

func find(h *netlink.Handle, name string) (netlink.Link, bool, error) {
	link, err := h.LinkByName(name)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) {
		return nil, false, nil
	}
	return link, err == nil, err
}

// move moves an interface of the calling thread's network namespace to another one. It gets its new name with that: each namespace may have
// others of either name.
func move(index int, as string, to int) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(as)))
	req.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(to))))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("there is another interface %s: %w", as, errdefs.ErrAlreadyExists)
	}
	return err
}
