package links

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// dumpTries bounds how often a list is asked for again that changed while the kernel handed it out.
const dumpTries = 20

// whole asks for a list until it was handed out without a change in between: else something of it may be missing or be there
// twice. On a host where that never happens the last answer is taken.
func whole[T any](list func() ([]T, error)) ([]T, error) {
	var all []T
	var err error
	for range dumpTries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return all, nil
}

func interfaces(h *netlink.Handle) ([]netlink.Link, error) { return whole(h.LinkList) }

func addresses(h *netlink.Handle, of netlink.Link, family int) ([]netlink.Addr, error) {
	return whole(func() ([]netlink.Addr, error) { return h.AddrList(of, family) })
}

// Routes lists the routes of a network namespace, those of this family.
func Routes(h *netlink.Handle, family int) ([]netlink.Route, error) {
	return whole(func() ([]netlink.Route, error) { return h.RouteList(nil, family) })
}
