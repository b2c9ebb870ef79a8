package node

import (
	"errors"
	"net"
	"runtime"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// TestNodeIPs: the node's addresses are those by which a host reaches others, in a network namespace that stands for the host.
func TestNodeIPs(t *testing.T) {
	for name, host := range map[string]struct {
		addresses, routes []string
		agent             v1alpha1.Agent
		ips, names        []string
		address           string
	}{
		"both families": {
			addresses: []string{"10.1.0.2/24", "10.9.0.2/24", "fd01::2/64"}, routes: []string{"10.1.0.1", "fd01::1"},
			ips: []string{"10.1.0.2", "fd01::2"}, address: "10.1.0.2",
		},
		"IPv6 alone": {addresses: []string{"fd01::2/64"}, routes: []string{"fd01::1"}, ips: []string{"fd01::2"}, address: "fd01::2"},
		"no way out": {addresses: []string{"10.1.0.2/24"}, ips: []string{"127.0.0.1"}, address: "127.0.0.1"},
		"an address of the agent's is the node's": {
			addresses: []string{"10.1.0.2/24", "fd01::2/64"}, routes: []string{"10.1.0.1", "fd01::1"}, agent: v1alpha1.Agent{Address: "10.9.0.2"},
			ips: []string{"10.9.0.2"}, address: "10.9.0.2",
		},
		"served on any": {
			addresses: []string{"10.1.0.2/24", "fd01::2/64"}, routes: []string{"10.1.0.1", "fd01::1"}, agent: v1alpha1.Agent{Address: "::"},
			ips: []string{"10.1.0.2", "fd01::2"}, address: "::",
		},
		"as configured": {
			agent: v1alpha1.Agent{Address: "127.0.0.1", NodeIPs: []string{"fd01::7", "10.1.0.7"}},
			ips:   []string{"fd01::7", "10.1.0.7"}, names: []string{"127.0.0.1", "fd01::7", "10.1.0.7"}, address: "127.0.0.1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var ips, names []string
			var address string
			err := inNetwork(host.addresses, host.routes, func() {
				ips = nodeIPs(&host.agent)
				names, address = agentNames(&host.agent, ips), agentAddress(&host.agent, ips)
			})
			if err != nil {
				t.Fatal(err)
			}
			if host.names == nil {
				host.names = host.ips
			}
			if !slices.Equal(ips, host.ips) || !slices.Equal(names, host.names) || address != host.address {
				t.Errorf("addresses %v, of the certificate %v, of the API %s; want %v, %v, %s", ips, names, address, host.ips, host.names, host.address)
			}
		})
	}
}

// inNetwork calls do in a network of its own, with a link that has these addresses and default routes.
func inNetwork(addresses, gateways []string, do func()) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			link, peer := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "out"}, PeerName: "peer"}, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "peer"}}
			err := errors.Join(netlink.LinkAdd(link), netlink.LinkSetUp(link), netlink.LinkSetUp(peer))
			for _, a := range addresses {
				addr, parse := netlink.ParseAddr(a)
				if parse != nil {
					return parse
				}
				addr.Flags = unix.IFA_F_NODAD
				err = errors.Join(err, netlink.AddrAdd(link, addr))
			}
			for _, g := range gateways {
				err = errors.Join(err, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Index, Gw: net.ParseIP(g)}))
			}
			if err == nil {
				do()
			}
			return err
		}()
	}()
	return <-done
}
