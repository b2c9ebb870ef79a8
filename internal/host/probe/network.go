package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/nftables"
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

// firewall lists the host's nftables tables, which changes nothing, and loads a masquerading rule in a network namespace
// of its own.
func firewall() Result {
	const name = "nftables"
	remedy := "load the kernel's modules: modprobe -a nf_tables nft_chain_nat nft_masq; and run as root with CAP_NET_ADMIN"
	conn, err := nftables.New()
	if err != nil {
		return bad(name, "netlink: %v", err).fail("%s", remedy)
	}
	tables, err := conn.ListTables()
	if err != nil {
		return bad(name, "list the tables: %v", err).fail("%s", remedy)
	}
	if err := inThrowaway(unix.CLONE_NEWNET, tryMasquerade); err != nil {
		return bad(name, "%v", err).fail("%s", remedy)
	}
	return ok(name, "masquerading works; the host has %d tables", len(tables))
}

func tryMasquerade() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	table := conn.AddTable(&nftables.Table{Name: "monopod-check", Family: nftables.TableFamilyINet})
	chain := conn.AddChain(&nftables.Chain{Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
		&expr.Masq{},
	}})
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("load a masquerading rule: %w", err)
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
