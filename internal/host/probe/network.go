package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// links makes a bridge and a veth pair with an end in it.
func links() Result {
	const name = "bridge, veth"
	err := inThrowaway(unix.CLONE_NEWNET, tryLinks)
	if err == nil {
		return ok(name, "can be made")
	}
	f := bad(name, "%v", err)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTSUP) {
		return f.fail("load the kernel's modules: modprobe bridge; modprobe veth")
	}
	return f.fail("run as root with CAP_SYS_ADMIN and CAP_NET_ADMIN")
}

func tryLinks() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	if err := h.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make a bridge: %w", err)
	}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0"}, PeerName: "veth1"}
	if err := h.LinkAdd(veth); err != nil {
		return fmt.Errorf("make a veth pair: %w", err)
	}
	if err := h.LinkSetMaster(veth, bridge); err != nil {
		return fmt.Errorf("put a veth into a bridge: %w", err)
	}
	return nil
}

// firewall lists the host's nftables tables, which changes nothing, and loads rules such as a node's in a network namespace
// of its own.
func firewall() Result {
	const name = "nftables"
	remedy := "load the kernel's modules: modprobe -a nf_tables nft_chain_nat nft_masq nft_nat nft_fib_inet; and run as root with CAP_NET_ADMIN"
	conn, err := nftables.New()
	if err != nil {
		return bad(name, "netlink: %v", err).fail("%s", remedy)
	}
	tables, err := conn.ListTables()
	if err != nil {
		return bad(name, "list the tables: %v", err).fail("%s", remedy)
	}
	for _, c := range []struct {
		what string
		try  func() error
	}{{"masquerading", tryMasquerade}, {"host ports", tryHostPorts}} {
		if err := inThrowaway(unix.CLONE_NEWNET, c.try); err != nil {
			return bad(name, "%s: %v", c.what, err).fail("%s", remedy)
		}
	}
	return ok(name, "masquerading and host ports work; the host has %d tables", len(tables))
}

func tryMasquerade() error {
	return tryRule(nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource, nil, []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
		&expr.Masq{},
	})
}

// tryHostPorts loads a map of ports and a rule that translates what comes to an address of the host by it.
func tryHostPorts() error {
	ports := &nftables.Set{Name: "ports", ID: 1, IsMap: true, KeyType: nftables.TypeInetService,
		DataType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService)}
	return tryRule(nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest, ports, []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: 1, DestRegister: unix.NFT_REG32_08, IsDestRegSet: true, SetName: ports.Name, SetID: ports.ID},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: unix.NFT_REG32_08, RegProtoMin: unix.NFT_REG32_09, Specified: true},
	})
}

// tryRule loads a chain of the type nat with a rule, and a set if there is one.
func tryRule(hook *nftables.ChainHook, priority *nftables.ChainPriority, set *nftables.Set, rule []expr.Any) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	table := conn.AddTable(&nftables.Table{Name: "monopod-check", Family: nftables.TableFamilyINet})
	if set != nil {
		set.Table = table
		if err := conn.AddSet(set, nil); err != nil {
			return err
		}
	}
	chain := conn.AddChain(&nftables.Chain{Name: "check", Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: priority})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule})
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("load a rule: %w", err)
	}
	return nil
}

// forwarding looks whether the host forwards, or can be told to: a node turns it on.
func (sys system) forwarding() Result {
	const name = "ip_forward"
	path := filepath.Join(sys.proc, "sys/net/ipv4/ip_forward")
	value, err := os.ReadFile(path)
	if err != nil {
		return bad(name, "cannot be read: %v", err).fail("mount proc at %s", sys.proc)
	}
	if strings.TrimSpace(string(value)) == "1" {
		return ok(name, "on")
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0) // opening changes nothing
	if err != nil {
		return bad(name, "off, and cannot be turned on: %v", err).fail("set the sysctl net.ipv4.ip_forward to 1 from outside; if this is a container, start it privileged")
	}
	f.Close()
	return ok(name, "off (a node turns it on)")
}

// ipv6 looks whether pods can have IPv6 addresses: without a configured range they get them where the host has IPv6.
func (sys system) ipv6() Result {
	const name = "ipv6"
	for _, scope := range []string{"all", "default"} {
		off, err := os.ReadFile(filepath.Join(sys.proc, "sys/net/ipv6/conf", scope, "disable_ipv6"))
		if errors.Is(err, os.ErrNotExist) {
			return ok(name, "not in this kernel: pods get IPv4 addresses only")
		}
		if err != nil {
			return bad(name, "cannot be read: %v", err).warn("pods get IPv4 addresses only")
		}
		if strings.TrimSpace(string(off)) != "0" {
			return ok(name, "switched off (net.ipv6.conf.%s.disable_ipv6): pods get IPv4 addresses only", scope)
		}
	}
	path := filepath.Join(sys.proc, "sys/net/ipv6/conf/all/forwarding")
	value, err := os.ReadFile(path)
	if err == nil && strings.TrimSpace(string(value)) == "1" {
		return ok(name, "on, with forwarding")
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0) // opening changes nothing
	if err != nil {
		return bad(name, "on, but forwarding is off and cannot be turned on: %v", err).warn("pods get IPv4 addresses only: set the sysctl net.ipv6.conf.all.forwarding to 1 from outside")
	}
	f.Close()
	return ok(name, "on (a node turns forwarding on for pods with IPv6 addresses)")
}
