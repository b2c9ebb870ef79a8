package rules

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/podnet"
)

// site is of which node and of which table rules are: what stays as it is for as long as the process lives. Its methods are pure.
type site struct {
	table    *nftables.Table
	network  podnet.Network
	dns      []netip.Addr
	ownPorts []network.OwnPort
	guards   bool // sandboxes send with their own addresses only
}

func siteOf(cfg Config) site {
	return site{table: &nftables.Table{Name: cfg.Network.Name, Family: nftables.TableFamilyINet}, network: cfg.Network, dns: cfg.DNS, ownPorts: cfg.OwnPorts, guards: !cfg.NoSourceGuard}
}

// own says whether a chain is of the node's own tables.
func (s site) own(c *nftables.Chain) bool {
	return c.Table.Family == s.table.Family && (c.Table.Name == s.table.Name || c.Table.Name == s.network.ServicesTable())
}

// fromPods and toPods compare the group of a packet's interface with that of the host's ends.
func (s site) fromPods(op expr.CmpOp) []expr.Any {
	return group(expr.MetaKeyIIFGROUP, op, s.network.PortGroup())
}

func (s site) toPods(op expr.CmpOp) []expr.Any {
	return group(expr.MetaKeyOIFGROUP, op, s.network.PortGroup())
}

// fromBridge says that a packet has come in by the bridge itself.
func (s site) fromBridge() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: interfaceName(s.network.Name)},
	}
}

// explain says of which table an error is, and what a kernel needs that cannot do it.
func (s site) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	var op *net.OpError
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.As(err, &op) && errors.Is(op.Err, unix.ENOENT) {
		return fmt.Errorf("network: nftables table %q: %s: %w; the kernel needs nf_tables, nft_chain_nat, nft_masq, nft_nat and nft_fib_inet (modprobe -a with these names): %w",
			s.table.Name, doing, err, errdefs.ErrFailedPrecondition)
	}
	return fmt.Errorf("network: nftables table %q: %s: %w", s.table.Name, doing, err)
}

// lacksMeans says whether a transaction has failed because the kernel does not have an expression of it.
func lacksMeans(err error) bool {
	var op *net.OpError
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) || errors.As(err, &op) && errors.Is(op.Err, unix.ENOENT)
}
