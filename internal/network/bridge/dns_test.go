package bridge

import (
	"net"
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"

	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/podnet"
)

// The addresses of the cluster's DNS are reached by pods and the host, through a firewall that drops, and by nobody else; host ports leave them alone.
func TestDNS(t *testing.T) {
	h := newHost(t)
	const at = "10.43.0.10"
	lo, err := netlink.LinkByName("lo")
	h.must(err)
	own := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(at).To4(), Mask: net.CIDRMask(32, 32)}}
	h.must(netlink.AddrAdd(lo, own))
	t.Cleanup(func() { h.must(netlink.AddrDel(lo, own)) })
	outside, host, _ := h.outside("192.168.77.0/30")
	h.in(outside, func() error {
		return netlink.RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.ParseIP(at).To4(), Mask: net.CIDRMask(32, 32)}, Gw: host.AsSlice()})
	})
	h.serve("", at+":53")
	h.serve("", at+":80")
	h.serve("", host.String()+":53")
	conn, err := nftables.New()
	h.must(err)
	table := conn.AddTable(&nftables.Table{Name: "office", Family: nftables.TableFamilyINet})
	drop := nftables.ChainPolicyDrop
	input := conn.AddChain(&nftables.Chain{Name: "input", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput,
		Priority: nftables.ChainPriorityFilter, Policy: &drop})
	accept := &expr.Verdict{Kind: expr.VerdictAccept}
	conn.AddRule(&nftables.Rule{Table: table, Chain: input, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte("lo\x00")}, accept}})
	// The administrator lets the outside in.
	conn.AddRule(&nftables.Rule{Table: table, Chain: input, Exprs: []expr.Any{ // ip saddr 192.168.77.0/24
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 3}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{192, 168, 77}}, accept}})
	h.must(conn.Flush())
	t.Cleanup(func() {
		conn.DelTable(table)
		h.must(conn.Flush())
	})
	rules := func() int {
		all, err := conn.GetRules(table, input)
		h.must(err)
		return len(all)
	}

	cfg := Config{DB: h.openDB("state.db"), Network: podnet.Network{Name: "mpt0", Ranges: testRanges}, DNS: []netip.Addr{netip.MustParseAddr(at), netip.MustParseAddr("fd00:43::a")}}
	b := h.bridge(cfg)
	pod := h.sandbox("pod")
	mine := h.setup(b, "pod", pod)
	if n := rules(); n != 2+4 {
		t.Errorf("the input chain has %d rules, want 2 of the administrator and 2 for each address", n)
	}
	if seen := h.ask(pod, at+":53"); seen != mine {
		t.Errorf("the DNS sees %s, not the pod's %s", seen, mine)
	}
	if _, err := h.tryAskIf(false, pod, at+":80"); err == nil {
		t.Error("a pod reaches another port of the address through the firewall")
	}
	if seen := h.ask("", at+":53"); seen != netip.MustParseAddr(at) {
		t.Errorf("the host is seen as %s", seen)
	}
	h.ask(outside, host.String()+":53") // so that it is not the administrator's rule
	if _, err := h.tryAskIf(false, outside, at+":53"); err == nil {
		t.Error("the host's neighbours reach the DNS")
	}
	// A pod with the port of all addresses has it, but for the DNS's.
	greedy := h.sandbox("greedy")
	_, err = b.Setup(t.Context(), network.Request{SandboxID: "greedy", NetNS: greedy, HostPorts: []network.HostPort{{Protocol: "TCP", HostPort: 53, ContainerPort: 99}}})
	h.must(err)
	if seen := h.ask(pod, at+":53"); seen != mine {
		t.Errorf("with a host port the DNS sees %s", seen)
	}
	h.must(b.ShareForwarding(t.Context()))
	if seen := h.ask(outside, at+":53"); !seen.IsValid() {
		t.Error("pods of CNI may be outside, and do not reach the DNS")
	}
	h.must(b.Remove(t.Context()))
	if n := rules(); n != 2 {
		t.Errorf("%d rules are left, want 2", n)
	}
}
