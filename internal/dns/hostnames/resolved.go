package hostnames

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/godbus/dbus/v5"
	"github.com/vishvananda/netlink"
)

// Resolved is systemd-resolved, as far as it is needed. Its settings of an interface last until the interface goes; it keeps them over its own restarts.
type Resolved interface {
	// Set has names of the domain, and no others, asked of the servers, by way of the interface. It is idempotent.
	Set(ctx context.Context, link int, domain string, servers []netip.Addr) error
	// Revert takes that back. It is idempotent.
	Revert(ctx context.Context, link int) error
}

// bus is systemd-resolved on the system's bus (org.freedesktop.resolve1(5)).
type bus struct{}

var _ Resolved = bus{}

// linkServer and linkDomain are what the bus takes: (iay) and (sb).
type linkServer struct {
	Family  int32
	Address []byte
}

type linkDomain struct {
	Domain string
	// Only: it says where names are asked, and is not searched.
	Only bool
}

// The families of addresses, as the bus has them.
const (
	familyIPv4 = 2
	familyIPv6 = 10
)

// Set implements Resolved.
func (bus) Set(ctx context.Context, link int, domain string, servers []netip.Addr) error {
	return call(ctx, func(do func(method string, args ...any) error) error {
		var all []linkServer
		for _, a := range servers {
			family := int32(familyIPv4)
			if a.Is6() {
				family = familyIPv6
			}
			all = append(all, linkServer{family, a.AsSlice()})
		}
		index := int32(link) // the kernel's
		for _, one := range []struct {
			method string
			arg    any
		}{
			// What is not signed, and not encrypted, is not asked to be. What is asked of everybody on a network is nothing for this one.
			{"SetLinkDNSSEC", "no"}, {"SetLinkDNSOverTLS", "no"}, {"SetLinkLLMNR", "no"}, {"SetLinkMulticastDNS", "no"},
			{"SetLinkDefaultRoute", false}, {"SetLinkDomains", []linkDomain{{domain, true}}}, {"SetLinkDNS", all},
		} {
			if err := do(one.method, index, one.arg); err != nil {
				return err
			}
		}
		return nil
	})
}

// Revert implements Resolved.
func (bus) Revert(ctx context.Context, link int) error {
	return call(ctx, func(do func(method string, args ...any) error) error {
		return do("RevertLink", int32(link)) // the kernel's
	})
}

func call(ctx context.Context, f func(do func(method string, args ...any) error) error) error {
	conn, err := dbus.ConnectSystemBus(dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("systemd-resolved: the system's bus: %w", err)
	}
	defer conn.Close()
	manager := conn.Object("org.freedesktop.resolve1", "/org/freedesktop/resolve1")
	return f(func(method string, args ...any) error {
		err := manager.CallWithContext(ctx, "org.freedesktop.resolve1.Manager."+method, 0, args...).Err
		if err != nil {
			return fmt.Errorf("systemd-resolved: %s: %w", method, err)
		}
		return nil
	})
}

// linkIndex is the index of an interface; 0: there is none.
func linkIndex(name string) (int, error) {
	link, err := netlink.LinkByName(name)
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	return link.Attrs().Index, nil
}
