package sockdiag

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/test/harness"
)

func addresses(c net.Conn) (local, remote netip.AddrPort) {
	return c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
}

func TestTCPOwner(t *testing.T) {
	table, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
				t.Logf("%s: %v", at, err) // a host without IPv6
				continue
			}
			t.Fatal(err)
		}
		defer l.Close()
		to := l.Addr().(*net.TCPAddr).AddrPort()
		for _, uid := range []int{0, 1000, 65534} {
			harness.DialAs(t, uid, to)
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			local, remote := addresses(c)
			if got, err := table.TCPOwner(remote, local); err != nil || got != uint32(uid) {
				t.Errorf("%s: the socket of user %d is of %d, %v", at, uid, got, err)
			}
		}
		// One that its process has closed is nobody's, and not root's.
		gone := harness.DialAs(t, 1000, to)
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := gone.Close(); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("the client has gone, and sends")
		}
		local, remote := addresses(c)
		if uid, err := table.TCPOwner(remote, local); !errdefs.IsNotFound(err) {
			t.Errorf("a closed socket is of user %d, %v", uid, err)
		}
		if uid, err := table.TCPOwner(netip.AddrPortFrom(remote.Addr(), 1), local); !errdefs.IsNotFound(err) {
			t.Errorf("one that never was is of user %d, %v", uid, err)
		}
	}
	if err := errors.Join(table.Close(), table.Close()); err != nil {
		t.Error(err)
	}
	if _, err := table.TCPOwner(netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")); !errors.Is(err, unix.EBADF) {
		t.Errorf("of a closed table: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte{})
	f.Add(request(netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")))
	f.Add(append([]byte{20, 0, 0, 0, 20, 0, 0, 0}, make([]byte, 100)...))
	f.Fuzz(func(t *testing.T, msg []byte) {
		_, _ = parse(msg)
	})
}

func BenchmarkTCPOwner(b *testing.B) {
	table, err := Open()
	if err != nil {
		b.Fatal(err)
	}
	defer table.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	local, remote := addresses(c)
	for b.Loop() {
		if _, err := table.TCPOwner(local, remote); err != nil {
			b.Fatal(err)
		}
	}
}
