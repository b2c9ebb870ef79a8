// Package address makes the addresses of the cluster's DNS the host's own: on an interface of kind dummy that belongs to the node, or on
// the loopback interface where the kernel has no such kind. So pods reach the DNS through their gateway, and the machine itself does, without
// any translation, however pods are connected.
//
// What is about to be made is written down before it is made (DIR/address.json), so that Remove takes away exactly that, also after a crash
// in any line and after the configuration has changed.
package address

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/atomicfile"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// loopback is the interface of hosts without interfaces of kind dummy.
const loopback = "lo"

// Config says which addresses.
type Config struct {
	// Dir is the directory of the note; it is made.
	Dir string
	// Link is the name of the interface that is made, at most 15 bytes.
	Link      string
	Addresses []netip.Addr
	Log       *slog.Logger
}

// Keeper keeps the addresses on the host.
type Keeper struct {
	cfg Config
	nl  *netlink.Handle
	ns  netns.NsHandle
	// name is the interface's, once it is known.
	name  atomic.Pointer[string]
	fresh atomic.Bool // Ensure has written the first note
}

// note is what is on the host, or may be. Version 1.
type note struct {
	Version   int          `json:"version"`
	Link      string       `json:"link"`
	Addresses []netip.Addr `json:"addresses"`
}

// New makes a keeper, of the network namespace of the calling thread. It changes nothing on the host.
func New(cfg Config) (*Keeper, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	ns, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("dns address: %w", err)
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dns address: %w", err), ns.Close())
	}
	return &Keeper{cfg: cfg, nl: nl, ns: ns}, nil
}

// Close gives the sockets back. It changes nothing on the host.
func (k *Keeper) Close() {
	k.nl.Close()
	_ = k.ns.Close() // it was opened for reading
}

func (k *Keeper) file() string { return filepath.Join(k.cfg.Dir, "address.json") }

// read returns what is written down; nil: nothing is.
func (k *Keeper) read() (*note, error) {
	raw, err := os.ReadFile(k.file())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // see above
	}
	if err != nil {
		return nil, err
	}
	n := &note{}
	if err := json.Unmarshal(raw, n); err != nil || n.Link == "" {
		return nil, fmt.Errorf("%s cannot be read (%w): look which addresses of the cluster's DNS are on the host (ip addr), take them away, and remove the file", k.file(), err)
	}
	return n, nil
}

func (k *Keeper) write(n *note) error {
	raw, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(k.cfg.Dir, 0o700); err != nil {
		return err
	}
	return atomicfile.Write(k.file(), append(raw, '\n'), 0o600)
}

// Ensure makes the addresses the host's. It is idempotent.
func (k *Keeper) Ensure() error {
	if err := k.ensure(); err != nil {
		return fmt.Errorf("the addresses %v of the cluster's DNS: %w", k.cfg.Addresses, err)
	}
	return nil
}

func (k *Keeper) ensure() error {
	before, err := k.read()
	if err != nil {
		return err
	}
	now := note{Version: 1, Link: k.cfg.Link, Addresses: k.cfg.Addresses}
	if before == nil {
		if err := k.free(); err != nil {
			return err
		}
		before = &now
		if err := k.write(before); err != nil {
			return err
		}
		k.fresh.Store(true)
	}
	if before.Link != loopback && before.Link != now.Link { // the node was given another name
		if err := k.Remove(); err != nil {
			return err
		}
		return k.ensure()
	}
	all := slices.Clone(before.Addresses)
	for _, a := range now.Addresses {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	now.Link = before.Link
	if len(all) > len(before.Addresses) {
		if err := k.write(&note{1, now.Link, all}); err != nil {
			return err
		}
	}
	if err := failpoint.Hit("dns/address/noted"); err != nil {
		return err
	}
	link, err := k.link(&now)
	if err != nil {
		return err
	}
	k.name.Store(&now.Link)
	for _, a := range all {
		if slices.Contains(now.Addresses, a) {
			err = k.put(link, a)
		} else {
			err = k.delete(link, a)
		}
		if err != nil {
			return fmt.Errorf("address %s of %s: %w", a, now.Link, err)
		}
	}
	if err := failpoint.Hit("dns/address/made"); err != nil {
		return err
	}
	if len(all) != len(now.Addresses) || now.Link != before.Link {
		return k.write(&now)
	}
	return nil
}

// Fresh says whether no earlier start had the addresses: who gives up takes them away then.
func (k *Keeper) Fresh() bool { return k.fresh.Load() }

// free says whether the interface's name is free.
func (k *Keeper) free() error {
	_, err := k.nl.LinkByName(k.cfg.Link)
	if err == nil {
		return fmt.Errorf("there is an interface %s that this node has not made: delete it (ip link delete %s), or set network.bridge to another name", k.cfg.Link, k.cfg.Link)
	}
	if !isNoLink(err) {
		return err
	}
	return nil
}

// link returns the interface, which is up then. Where there can be no such interface it is the loopback, and n says so.
func (k *Keeper) link(n *note) (netlink.Link, error) {
	link, err := k.nl.LinkByName(n.Link)
	if isNoLink(err) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = n.Link
		err = k.nl.LinkAdd(&netlink.Dummy{LinkAttrs: attrs})
		if errors.Is(err, unix.EOPNOTSUPP) {
			k.cfg.Log.Info("the kernel has no interfaces of kind dummy: the addresses of the cluster's DNS are on the loopback interface", "addresses", k.cfg.Addresses)
			n.Link = loopback
			if err := k.write(&note{1, loopback, n.Addresses}); err != nil {
				return nil, err
			}
		} else if err != nil {
			return nil, fmt.Errorf("make interface %s: %w", n.Link, err)
		}
		link, err = k.nl.LinkByName(n.Link)
	}
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", n.Link, err)
	}
	if n.Link != loopback {
		// It needs no address of its own making. Where sysctls cannot be written it has one.
		const none = "1"
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+n.Link+"/addr_gen_mode", []byte(none), 0) // the kernel's file
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		if err := k.nl.LinkSetUp(link); err != nil {
			return nil, fmt.Errorf("set interface %s up: %w", n.Link, err)
		}
	}
	return link, nil
}

func isNoLink(err error) bool {
	var gone netlink.LinkNotFoundError
	return errors.As(err, &gone)
}

// addressOf is an address by itself, which is used at once. It is of the host's scope: the kernel, and who else looks for an address of the host, take it for nobody's source.
// A masquerade towards an interface without addresses, as pods' are, takes the first address that there is, and others drop what comes back to it.
func addressOf(a netip.Addr) *netlink.Addr {
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
	if a.Is4() {
		addr.Scope = unix.RT_SCOPE_HOST
	}
	if a.Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	return addr
}

// put gives an interface an address. One that it has in another scope, of an earlier version, is made anew: the kernel does not change it.
func (k *Keeper) put(link netlink.Link, a netip.Addr) error {
	want := addressOf(a)
	have, err := k.nl.AddrList(link, unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	if a.Is4() && slices.ContainsFunc(have, func(h netlink.Addr) bool { return h.IP.Equal(want.IP) && h.Scope != want.Scope }) {
		if err := k.delete(link, a); err != nil {
			return err
		}
	}
	return k.nl.AddrReplace(link, want)
}

func (k *Keeper) delete(link netlink.Link, a netip.Addr) error {
	err := k.nl.AddrDel(link, addressOf(a))
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	return err
}

// Link is the name of the interface that has the addresses, as far as it is known.
func (k *Keeper) Link() string {
	if name := k.name.Load(); name != nil {
		return *name
	}
	if n, err := k.read(); err == nil && n != nil {
		return n.Link
	}
	return k.cfg.Link
}

// Remove takes the addresses away, and the interface. It is idempotent.
func (k *Keeper) Remove() error {
	n, err := k.read()
	if err != nil || n == nil {
		return err
	}
	link, err := k.nl.LinkByName(n.Link)
	switch {
	case isNoLink(err):
	case err != nil:
		return fmt.Errorf("interface %s: %w", n.Link, err)
	case n.Link == loopback:
		for _, a := range n.Addresses {
			if err := k.delete(link, a); err != nil {
				return fmt.Errorf("take the address %s from %s: %w", a, n.Link, err)
			}
		}
	default:
		if err := k.nl.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("delete interface %s: %w", n.Link, err)
		}
	}
	if err := failpoint.Hit("dns/address/removed"); err != nil {
		return err
	}
	if err := os.Remove(k.file()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// missing says that an address is not there, or its interface is down.
func (k *Keeper) missing() bool {
	link, err := k.nl.LinkByName(k.Link())
	if err != nil || link.Attrs().Flags&net.FlagUp == 0 {
		return true
	}
	have, err := k.nl.AddrList(link, unix.AF_UNSPEC)
	if err != nil {
		return true
	}
	for _, a := range k.cfg.Addresses {
		if !slices.ContainsFunc(have, func(h netlink.Addr) bool { got, ok := netip.AddrFromSlice(h.IP); return ok && got.Unmap() == a }) {
			return true
		}
	}
	return false
}
