package harness

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// NewNetwork moves the test's goroutine into a network namespace that plays the host, with nothing but a loopback that is up. It
// ends with the goroutine.
func NewNetwork(t testing.TB) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread, and the namespace with it, ends with the test's goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("a network namespace is needed (root): %v", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ClearNetwork removes what CNI plugins keep for their network as a whole: links and tables. The next test's thread may be in this
// one's namespace. It is for a test in a namespace of NewNetwork.
func ClearNetwork(t testing.TB) {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Attrs().Name != "lo" {
			_ = netlink.LinkDel(l) // the other end of a pair may be gone by now
		}
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	tables, err := conn.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		conn.DelTable(table)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

// PinNetNS makes a network namespace and pins it at the path, until DropNetNS or the test's end.
func PinNetNS(t testing.TB, path string) {
	t.Helper()
	err := os.WriteFile(path, nil, 0o600)
	if err == nil {
		err = onThread(func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			return unix.Mount(fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid()), path, "", unix.MS_BIND, "")
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { DropNetNS(t, path) })
}

// DropNetNS ends the pin of a namespace. Its file stays, as after a reboot. A second time does nothing.
func DropNetNS(t testing.TB, path string) {
	t.Helper()
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
}

// InNetNS runs f on a thread of a namespace.
func InNetNS(path string, f func() error) error {
	return onThread(func() error {
		ns, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: path, Err: err}
		}
		defer unix.Close(ns)
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// PodNetNS is the path of the network namespace of the pod that has the address.
func (n *Node) PodNetNS(ip netip.Addr) string {
	n.t.Helper()
	all, err := filepath.Glob(filepath.Join(n.Dir, "run", "sandboxes", "*", "ns", "net"))
	if err != nil {
		n.t.Fatal(err)
	}
	var found string
	for _, path := range all {
		err := InNetNS(path, func() error {
			addrs, err := netlink.AddrList(nil, unix.AF_INET)
			for _, a := range addrs {
				if got, _ := netip.AddrFromSlice(a.IP.To4()); got == ip {
					found = path
				}
			}
			return err
		})
		if err != nil {
			n.t.Fatal(err)
		}
	}
	if found == "" {
		n.t.Fatalf("no namespace below %s has the address %s", n.Dir, ip)
	}
	return found
}

// onThread runs f on a thread that ends with it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		done <- f()
	}()
	return <-done
}

// EchoAddress answers each connection with the address that it comes from, until the test ends.
func EchoAddress(t testing.TB, l net.Listener) {
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, c.RemoteAddr())
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close() })
}
