package harness

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// DialAs connects to a TCP address as a user: the kernel takes the socket for the user's. The connection is closed after the test.
func DialAs(t testing.TB, uid int, to netip.AddrPort) net.Conn {
	t.Helper()
	c, err := dialAs(uid, to)
	if err != nil {
		t.Fatalf("connect to %s as user %d: %v", to, uid, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func dialAs(uid int, to netip.AddrPort) (net.Conn, error) {
	// Whose files and sockets are is said for each thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, err := unix.SetfsuidRetUid(uid); err != nil {
		return nil, err
	}
	defer func() { _, _ = unix.SetfsuidRetUid(os.Geteuid()) }()
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if ip := to.Addr().Unmap(); ip.Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: ip.As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "client")
	defer f.Close() // FileConn duplicates it
	if err := unix.Connect(fd, sa); err != nil {
		return nil, err
	}
	return net.FileConn(f)
}
