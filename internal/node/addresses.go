package node

import (
	"net"
	"net/netip"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// agentAddress is where the agent's API is served: the configured address, else the first of the node's own.
func agentAddress(a *v1alpha1.Agent, ips []string) string {
	if a.Address != "" {
		return a.Address
	}
	return ips[0]
}

// fixed says that the agent's configured address is the node's.
func fixed(a *v1alpha1.Agent) bool {
	ip, err := netip.ParseAddr(a.Address)
	return err == nil && !ip.IsUnspecified()
}

// nodeIPs are the node's own addresses, at least one: those that are configured, else the agent's own, else those from which the host reaches others,
// else loopback. Those that are not configured may change: see followAddresses.
func nodeIPs(a *v1alpha1.Agent) []string {
	if ips := a.NodeIPs; len(ips) > 0 {
		return ips
	}
	if ip, err := netip.ParseAddr(a.Address); err == nil && !ip.IsUnspecified() {
		return []string{ip.String()}
	}
	if ips := sourceAddresses(); len(ips) > 0 {
		return ips
	}
	return []string{"127.0.0.1"}
}

// agentNames are the addresses that the agent's certificate is for.
func agentNames(a *v1alpha1.Agent, ips []string) []string {
	if at, err := netip.ParseAddr(a.Address); err == nil && !at.IsUnspecified() && at.String() != ips[0] {
		return append([]string{at.String()}, ips...)
	}
	return ips
}

// sourceAddresses are those that the kernel chooses towards the default routes, IPv4 first. They are asked for with addresses of documentation (RFC 5737,
// RFC 3849), which no other route leads to.
func sourceAddresses() (ips []string) {
	for _, to := range []string{"192.0.2.1", "2001:db8::1"} {
		// Connecting a UDP socket sends nothing: it only asks the kernel for the route.
		conn, err := net.Dial("udp", net.JoinHostPort(to, "9"))
		if err != nil {
			continue
		}
		conn.Close()
		from := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		if !from.IsLoopback() && !from.IsLinkLocalUnicast() { // those nobody reaches
			ips = append(ips, from.String())
		}
	}
	return ips
}
