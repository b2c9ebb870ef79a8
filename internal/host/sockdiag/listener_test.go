package sockdiag

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Who listens is named, in both families, and who listens at a loopback address only is nobody.
func TestListener(t *testing.T) {
	for _, c := range []struct {
		protocol, at string
		seen         bool
	}{{"tcp", "0.0.0.0:0", true}, {"tcp", "[::]:0", true}, {"tcp", "127.0.0.1:0", false}, {"tcp", "[::1]:0", false}, {"udp", "0.0.0.0:0", true}, {"udp", "127.0.0.1:0", false}} {
		var a net.Addr
		if c.protocol == "tcp" {
			l, err := net.Listen("tcp", c.at)
			if err != nil {
				t.Logf("%s: %v", c.at, err) // a host without IPv6
				continue
			}
			defer l.Close()
			a = l.Addr()
		} else {
			p, err := net.ListenPacket("udp", c.at)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			a = p.LocalAddr()
		}
		_, number, _ := net.SplitHostPort(a.String())
		port, _ := strconv.Atoi(number)
		who := Listener(c.protocol, uint16(port))
		if (who != "") != c.seen || c.seen && !strings.Contains(who, strconv.Itoa(os.Getpid())) {
			t.Errorf("%s %s: %q", c.protocol, a, who)
		}
		if who := AnyListener(c.protocol, uint16(port)); !strings.Contains(who, strconv.Itoa(os.Getpid())) {
			t.Errorf("%s %s, at any address: %q", c.protocol, a, who)
		}
	}
}

// FuzzListenerOf: whatever a line says, reading it ends.
func FuzzListenerOf(f *testing.F) {
	f.Add("   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1 0 100 0 0 10 0", "0A", uint16(8080))
	f.Fuzz(func(_ *testing.T, line, state string, port uint16) { listenerOf(line, state, port, true) })
}
