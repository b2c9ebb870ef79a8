package apiserver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/apiserver/ownservice"
)

// Extend serves the API at more addresses of this host, which it need not have yet, and has them in the certificate: those of the pods' gateways, at which
// pods reach it. It is called before Run.
func (s *Server) Extend(ctx context.Context, more []netip.Addr) error {
	for _, address := range more {
		if s.listensAt(address) {
			continue
		}
		config := net.ListenConfig{Control: freebind(address)}
		at := net.JoinHostPort(address.String(), strconv.Itoa(s.Port()))
		l, err := config.Listen(ctx, "tcp", at)
		if err != nil {
			return fmt.Errorf("the Kubernetes API cannot be served to pods on %s: %w; choose another port", at, err)
		}
		s.listener.many.add(l)
	}
	return s.extend(more)
}

// listensAt: the address is served without more.
func (s *Server) listensAt(address netip.Addr) bool {
	bound, err := netip.ParseAddr(s.cfg.BindAddress)
	return err == nil && (bound == address || bound.IsUnspecified())
}

// freebind lets a socket listen at an address that the host does not have yet: a bridge's comes with the bridge.
func freebind(address netip.Addr) func(network, at string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		level, option := unix.SOL_IP, unix.IP_FREEBIND
		if address.Is6() {
			level, option = unix.SOL_IPV6, unix.IPV6_FREEBIND
		}
		if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }); e != nil {
			return e
		}
		return err
	}
}

// Advertised is where pods reach the API; the zero value: they do not.
func (s *Server) Advertised() netip.AddrPort {
	port := uint16(s.Port()) // a port
	if a := s.cfg.AdvertiseAddress; a.IsValid() {
		return netip.AddrPortFrom(a, port)
	}
	if len(s.extra) > 0 {
		return netip.AddrPortFrom(s.extra[0], port)
	}
	if bound, err := netip.ParseAddr(s.cfg.BindAddress); err == nil && !bound.IsUnspecified() && !bound.IsLoopback() {
		return netip.AddrPortFrom(bound, port)
	}
	return netip.AddrPort{}
}

// own keeps the service kubernetes.
func (s *Server) own() *ownservice.Keeper {
	return ownservice.New(ownservice.Config{
		Storages: s.resources.storages, ClusterIPs: s.ranges.First(), DNS: s.cfg.DNS, Endpoint: s.Advertised(), Port: uint16(s.Port()), Shared: s.cfg.shared(), Log: s.cfg.Log, // a port
	})
}
