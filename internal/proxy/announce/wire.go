package announce

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ns"
)

// Whether an address is free is asked as often as RFC 5227 asks (section 1.1), and faster: a service waits for it.
const (
	probes     = 3
	probePause = 200 * time.Millisecond
)

// onHost calls f on a thread in the host's network namespace.
func (a *Announcer) onHost(f func() error) error {
	return ns.Run(fmt.Sprintf("/proc/self/fd/%d", int(a.ns)), ns.Network, f)
}

// arpSocket opens a socket that hears the ARP packets of a link.
func (a *Announcer) arpSocket(index int) (conn *packet.Conn, of *net.Interface, err error) {
	err = a.onHost(func() (err error) {
		if of, err = net.InterfaceByIndex(index); err == nil {
			conn, err = packet.Listen(of, packet.Datagram, unix.ETH_P_ARP, nil)
		}
		return err
	})
	return conn, of, err
}

// probe finds out which of these IPv4 addresses other machines of the link have. It takes some 600 ms.
func (a *Announcer) probe(ctx context.Context, index int, about []netip.Addr) (by map[netip.Addr]string, err error) {
	conn, of, err := a.arpSocket(index)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
	defer stop()
	by = map[netip.Addr]string{}
	for range probes {
		for _, addr := range about {
			if _, err := conn.WriteTo(arpAsking(of.HardwareAddr, netip.IPv4Unspecified(), addr), &packet.Addr{HardwareAddr: broadcast}); err != nil {
				return nil, err
			}
		}
		if err := conn.SetReadDeadline(time.Now().Add(probePause)); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := hear(conn, of.HardwareAddr, by); err != nil {
			return nil, err
		}
	}
	return by, ctx.Err()
}

// hear notes who has which address, until the deadline.
func hear(conn *packet.Conn, own net.HardwareAddr, by map[netip.Addr]string) error {
	buf := make([]byte, 128)
	for {
		n, _, err := conn.ReadFrom(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		if addr, mac, ok := arpClaim(buf[:n], own); ok {
			by[addr] = mac.String()
		}
	}
}

// tell says to all neighbours of a link that addresses are here. A socket is opened for all of them together: to close one of packets takes the kernel some 10 ms.
func (a *Announcer) tell(index int, all []netip.Addr) error {
	var four, six []netip.Addr
	for _, addr := range all {
		if addr.Is4() {
			four = append(four, addr)
		} else {
			six = append(six, addr)
		}
	}
	return errors.Join(a.tellARP(index, four), a.tellND(index, six))
}

func (a *Announcer) tellARP(index int, all []netip.Addr) error {
	if len(all) == 0 {
		return nil
	}
	conn, of, err := a.arpSocket(index)
	if err != nil {
		return err
	}
	defer conn.Close()
	var errs []error
	for _, addr := range all {
		_, err := conn.WriteTo(arpAsking(of.HardwareAddr, addr, addr), &packet.Addr{HardwareAddr: broadcast})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (a *Announcer) tellND(index int, all []netip.Addr) error {
	if len(all) == 0 {
		return nil
	}
	return a.onHost(func() error {
		of, err := net.InterfaceByIndex(index)
		if err != nil {
			return err
		}
		conn, err := icmp.ListenPacket("ip6:ipv6-icmp", "::")
		if err != nil {
			return err
		}
		defer conn.Close()
		const most = 255 // neighbours take no other hop limit (RFC 4861, section 7.1.2)
		var errs []error
		for _, addr := range all {
			message, err := advertisement(of.HardwareAddr, addr)
			if err == nil {
				_, err = conn.IPv6PacketConn().WriteTo(message, &ipv6.ControlMessage{Src: addr.AsSlice(), IfIndex: index, HopLimit: most}, &net.IPAddr{IP: net.IPv6linklocalallnodes})
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}
