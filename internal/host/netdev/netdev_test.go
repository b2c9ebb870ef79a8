package netdev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"

	"monopod.dev/monopod/internal/host/ns"
)

const address = "198.51.100.9/24"

// pod makes a network namespace, and an interface of the host that is up, has an address and is moved there as fast0.
func pod(t *testing.T) (path, nic string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ns")
	check(t, os.Mkdir(dir, 0o700))
	check(t, ns.Create(dir, ns.Options{Network: true}))
	t.Cleanup(func() { check(t, ns.Remove(dir)) })
	path = ns.Path(dir, ns.Network)
	nic = fmt.Sprintf("mpnd%d", os.Getpid()%1000000)
	check(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: nic}, PeerName: nic + "p"}))
	t.Cleanup(func() {
		if peer, err := netlink.LinkByName(nic + "p"); err == nil {
			check(t, netlink.LinkDel(peer))
		}
	})
	link, err := netlink.LinkByName(nic)
	check(t, err)
	check(t, errors.Join(netlink.AddrAdd(link, addr(t, address)), netlink.LinkSetUp(link)))
	return path, nic
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func addr(t *testing.T, text string) *netlink.Addr {
	t.Helper()
	a, err := netlink.ParseAddr(text)
	check(t, err)
	return a
}

// lend moves the interface there, as an OCI runtime does.
func lend(t *testing.T, path, nic string) State {
	t.Helper()
	was, err := StateOf(nic)
	check(t, err)
	if was.Kind != "veth" || !was.Up || fmt.Sprint(was.Addresses) != "["+address+"]" {
		t.Fatalf("state %+v", was)
	}
	target, err := os.Open(path)
	check(t, err)
	defer target.Close()
	link, err := netlink.LinkByName(nic)
	check(t, err)
	check(t, move(link.Attrs().Index, "fast0", int(target.Fd())))
	return was
}

// TestReturn: the interface is again what it was, whatever has been done to it.
func TestReturn(t *testing.T) {
	path, nic := pod(t)
	was := lend(t, path, nic)
	if has, err := Has(path, "fast0"); err != nil || !has {
		t.Fatalf("%v, %v", has, err)
	}
	check(t, inside(path, func(h *netlink.Handle) error {
		link, err := h.LinkByName("fast0")
		return errors.Join(err, h.AddrAdd(link, addr(t, "203.0.113.1/8")), h.LinkSetUp(link))
	}))
	check(t, Return(path, "fast0", nic, was))
	now, err := StateOf(nic)
	if err != nil || fmt.Sprint(now) != fmt.Sprint(was) {
		t.Errorf("%+v, %v; it was %+v", now, err, was)
	}
	check(t, Return(path, "fast0", nic, was)) // it is done
}

// TestAnotherInterfaceIsNotReturned: a pod that may do as it likes with its network cannot have an interface of its own become one of the host's.
func TestAnotherInterfaceIsNotReturned(t *testing.T) {
	path, nic := pod(t)
	was := lend(t, path, nic)
	check(t, inside(path, func(h *netlink.Handle) error {
		link, err := h.LinkByName("fast0")
		return errors.Join(err, h.LinkSetName(link, "mine"), h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "fast0"}}))
	}))
	err := Return(path, "fast0", nic, was)
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "another one now (bridge") {
		t.Errorf("got %v", err)
	}
	if s, err := StateOf(nic); err != nil || s.Kind != "" {
		t.Errorf("the host has %+v, %v", s, err)
	}
}
