package reach

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// A proxied request goes to an address that somebody has published: a node's agent says where its pods are, and where it
// is itself. What is published is not believed where it would lead to what only this host can reach.

// dialTimeout bounds how long a connection may take to open.
const dialTimeout = 10 * time.Second

// Dial opens a connection to an address and a port.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// rule says why no proxied request may go to an address; nil: it may.
type rule func(netip.Addr) error

// metadata are the addresses beside the link-local ones at which clouds tell machines their secrets.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("192.0.0.0/24"),       // Oracle; for protocols, by RFC 6890
	netip.MustParsePrefix("fd00:ec2::/32"),      // Amazon
	netip.MustParsePrefix("fd20:ce::/32"),       // Google
}

// ofHost is the rule for the addresses of nodes.
func ofHost(ip netip.Addr) error {
	ip = ip.Unmap()
	switch {
	case !ip.IsGlobalUnicast(): // loopback, link-local, multicast, none at all
		return fmt.Errorf("address not allowed: %s is not one that other hosts reach", ip)
	case slices.ContainsFunc(metadata, func(p netip.Prefix) bool { return p.Contains(ip.WithZone("")) }):
		return fmt.Errorf("address not allowed: clouds serve the metadata of machines at %s", ip)
	}
	return nil
}

// ofPod is the rule for the addresses of pods that have a network of their own: none of them is one of this host.
func ofPod(own func() ([]netip.Addr, error)) rule {
	return func(ip netip.Addr) error {
		if err := ofHost(ip); err != nil {
			return err
		}
		all, err := own()
		if err != nil {
			return fmt.Errorf("address not allowed: the API server cannot tell whether %s is its own: %w", ip, err)
		}
		if slices.ContainsFunc(all, func(o netip.Addr) bool { return o.Unmap() == ip.Unmap() }) {
			return fmt.Errorf("address not allowed: %s is one of the API server's host", ip)
		}
		return nil
	}
}

// ownAddresses are those of this host's interfaces.
func ownAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var ips []netip.Addr
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			ips = append(ips, prefix.Addr())
		}
	}
	return ips, nil
}

// dial connects to an allowed address of a host. A name is resolved here, and what was looked at is what is dialled.
func (r rule) dial(open Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, err
		}
		var errs []error
		for _, ip := range ips {
			err := r(ip)
			if err == nil {
				var conn net.Conn
				if conn, err = open(ctx, network, net.JoinHostPort(ip.Unmap().String(), port)); err == nil {
					return conn, nil
				}
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	}
}

// withoutCredentials is a transport for addresses that the rule allows. It shows nobody who the API server is, and asks
// nobody: what a pod serves has a certificate of its own making.
func (r rule) withoutCredentials(open Dial) *http.Transport {
	return &http.Transport{
		DialContext:         r.dial(open),
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true},
		TLSHandshakeTimeout: dialTimeout,
		// An address is looked at for each request: another pod may have it by the next.
		DisableKeepAlives: true,
	}
}
