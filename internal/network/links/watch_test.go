package links

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What is heard of interfaces and routes concerns the uplink, or the network's own routes, or nobody. It is pure.
func TestWhatIsHeard(t *testing.T) {
	link := func(index int32) []byte {
		msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
		msg.Index = index
		return msg.Serialize()
	}
	route := func(to string, protocol byte) []byte {
		return routeRequest("", netip.MustParsePrefix(to), unix.RT_SCOPE_LINK, protocol, 3).Body
	}
	for what, c := range map[string]struct {
		typ      uint16
		body     []byte
		ofUplink bool
		gone     string
	}{
		"the uplink changes":         {unix.RTM_NEWLINK, link(7), true, ""},
		"it goes":                    {unix.RTM_DELLINK, link(7), true, ""},
		"another interface":          {unix.RTM_NEWLINK, link(8), false, ""},
		"a message that is cut":      {unix.RTM_NEWLINK, link(7)[:6], false, ""},
		"a default route":            {unix.RTM_NEWROUTE, route("0.0.0.0/0", unix.RTPROT_BOOT), true, ""},
		"a default route goes":       {unix.RTM_DELROUTE, route("::/0", unix.RTPROT_BOOT), true, ""},
		"another route goes":         {unix.RTM_DELROUTE, route("10.0.0.0/8", unix.RTPROT_BOOT), false, ""},
		"a route to a sandbox goes":  {unix.RTM_DELROUTE, route("10.1.0.2/32", OwnRoutes), false, "10.1.0.2/32"},
		"a range's route goes":       {unix.RTM_DELROUTE, route("fd00::/64", OwnRoutes), false, "fd00::/64"},
		"a route to a sandbox comes": {unix.RTM_NEWROUTE, route("10.1.0.2/32", OwnRoutes), false, ""},
	} {
		if got := ofUplink(c.typ, c.body, 7); got != c.ofUplink {
			t.Errorf("%s: of the uplink: %v", what, got)
		}
		to, ours := ownRouteGone(c.typ, c.body)
		if ours != (c.gone != "") || ours && to.String() != c.gone {
			t.Errorf("%s: a route of ours has gone: %v, %s", what, ours, to)
		}
	}
	if ofUplink(unix.RTM_NEWLINK, link(0), 0) {
		t.Error("without an uplink something is of it")
	}
}
