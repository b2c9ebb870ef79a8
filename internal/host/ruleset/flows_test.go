package ruleset

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
)

// A direction of a flow is read with its addresses and ports, whatever else there is in it.
func TestParseTuple(t *testing.T) {
	for _, c := range []struct{ src, dst string }{{"10.0.0.1:1234", "10.43.0.7:53"}, {"[fd00::1]:1234", "[fd00::7]:53"}} {
		src, dst := netip.MustParseAddrPort(c.src), netip.MustParseAddrPort(c.dst)
		from, to := ctaIPv4Src, ctaIPv4Dst
		if src.Addr().Is6() {
			from, to = ctaIPv6Src, ctaIPv6Dst
		}
		port := func(p uint16) []byte { return []byte{byte(p >> 8), byte(p)} }
		ip := nlsock.Nested(ctaTupleIP|unix.NLA_F_NESTED, nl.NewRtAttr(from, src.Addr().AsSlice()), nl.NewRtAttr(to, dst.Addr().AsSlice()))
		proto := nlsock.Nested(ctaTupleProto|unix.NLA_F_NESTED, nl.NewRtAttr(ctaProtoNum, []byte{17}),
			nl.NewRtAttr(ctaProtoSrcPort, port(src.Port())), nl.NewRtAttr(ctaProtoDstPort, port(dst.Port())), nl.NewRtAttr(40, []byte{1}))
		got := parseTuple(append(ip.Serialize(), proto.Serialize()...))
		if got != (tuple{17, src, dst}) {
			t.Errorf("%v to %v is read as %+v", src, dst, got)
		}
	}
	if got := parseTuple([]byte{1, 2, 3}); got.proto != 0 {
		t.Errorf("what is no tuple is read as %+v", got)
	}
}
