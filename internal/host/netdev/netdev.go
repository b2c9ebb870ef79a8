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

// State is what an interface was on the host, and is to be there again.
type State struct {
	// Kind and Parent are what it is: the driver's kind, "device" for hardware, and the hardware's name on its bus. Neither can be chosen by
	// who may do as he likes in another network namespace.
	Kind   string `json:"kind"`
	Parent string `json:"parent,omitempty"`
	Up     bool   `json:"up,omitempty"`
	// Addresses are the permanent ones of global scope, with their prefix lengths; the kernel drops them when an interface is moved.
	Addresses []string `json:"addresses,omitempty"`
}

// StateOf is the state of an interface of this process's network namespace; one that is not there has none.
func StateOf(name string) (s State, err error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return s, fmt.Errorf("netlink socket: %w", err)
	}
	defer h.Close()
	link, has, err := find(h, name)
	if err != nil || !has {
		return s, err
	}
	addresses, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return s, fmt.Errorf("its addresses: %w", err)
	}
	s = State{Kind: link.Type(), Parent: link.Attrs().ParentDev, Up: link.Attrs().Flags&net.FlagUp != 0}
	for _, a := range addresses {
		if a.Flags&unix.IFA_F_PERMANENT != 0 && a.Scope == unix.RT_SCOPE_UNIVERSE {
			s.Addresses = append(s.Addresses, a.IPNet.String())
		}
	}
	return s, nil
}

// Return moves the interface called name in the network namespace at the path to this process's, where it is called as, and is again what it was: what
// has been done to its addresses in between is of no account. One that is not there any more is no error. Where as is taken, the error is an
// errdefs.ErrAlreadyExists; where another interface has the name, an errdefs.ErrFailedPrecondition: it is left where it is.
func Return(path, name, as string, was State) error {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	moved := false
	err = inside(path, func(h *netlink.Handle) error {
		link, has, err := find(h, name)
		if err != nil || !has {
			return err
		}
		if link.Type() != was.Kind || link.Attrs().ParentDev != was.Parent {
			return fmt.Errorf("it is another one now (%s %s; it was %s %s): %w", link.Type(), link.Attrs().ParentDev, was.Kind, was.Parent, errdefs.ErrFailedPrecondition)
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
	for _, text := range was.Addresses {
		addr, err := netlink.ParseAddr(text)
		if err == nil {
			err = h.AddrAdd(link, &netlink.Addr{IPNet: addr.IPNet})
		}
		errs = append(errs, err)
	}
	if was.Up {
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
