package cni

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"monopod.dev/monopod/internal/network"
)

// podResult is what the runtime needs of a result: the addresses of the main interface, of which there must be one.
func podResult(res types.Result) (network.Result, error) {
	if res == nil {
		return network.Result{}, fmt.Errorf("the plugins gave no result: %w", errdefs.ErrInternal)
	}
	r, err := types100.NewResultFromResult(res)
	if err != nil {
		return network.Result{}, fmt.Errorf("the result of the plugins: %w: %w", err, errdefs.ErrInternal)
	}
	out := network.Result{Interface: network.InterfaceName}
	var gateways []netip.Addr
	for i, ip := range r.IPs {
		// Old plugins do not say whose an address is: the main interface's.
		if ip.Interface != nil {
			n := *ip.Interface
			if n < 0 || n >= len(r.Interfaces) {
				return network.Result{}, fmt.Errorf("the result of the plugins: address %d belongs to interface %d, of %d: %w", i, n, len(r.Interfaces), errdefs.ErrInternal)
			}
			if r.Interfaces[n].Name != network.InterfaceName || r.Interfaces[n].Sandbox == "" {
				continue
			}
		}
		addr := addrOf(ip.Address.IP)
		if !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() {
			return network.Result{}, fmt.Errorf("the result of the plugins: %q is no address of an interface: %w", ip.Address.String(), errdefs.ErrInternal)
		}
		if !slices.Contains(out.IPs, addr) {
			out.IPs = append(out.IPs, addr)
			gateways = append(gateways, addrOf(ip.Gateway))
		}
	}
	if len(out.IPs) == 0 {
		return network.Result{}, fmt.Errorf("the plugins gave no address for %s: %w", network.InterfaceName, errdefs.ErrInternal)
	}
	first := slices.IndexFunc(out.IPs, netip.Addr.Is4)
	out.Gateway = gateways[max(first, 0)]
	slices.SortStableFunc(out.IPs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return out, nil
}

func addrOf(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}
