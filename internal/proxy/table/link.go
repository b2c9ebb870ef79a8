package table

import (
	"bytes"
	"maps"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/host/ruleset"
)

// siteNow looks where on the host it is.
func (t *Table) siteNow(ranges []netip.Prefix) site {
	s := site{bridge: t.cfg.Bridge.Name, group: t.cfg.Bridge.PortGroup, bridges: t.cfg.Bridge.Group, ranges: ranges, guards: t.cfg.Guards}
	if s.bridge != "" && t.unbridged == nil {
		s.mac = t.bridgeMAC()
	}
	return s
}

// bridgeMAC is the bridge's hardware address; nil: there is no bridge yet.
func (t *Table) bridgeMAC() (mac net.HardwareAddr) {
	body := append(nl.NewIfInfomsg(unix.AF_UNSPEC).Serialize(), nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(t.cfg.Bridge.Name)).Serialize()...)
	_ = t.routes.Dump(nlsock.Request{What: "look up " + t.cfg.Bridge.Name, Type: unix.RTM_GETLINK, Body: body}, func(body []byte) {
		_, mac = ruleset.LinkOf(body)
	}) // its coming is told
	return mac
}

// HostAddresses are those that the host has, but for loopback ones.
func (t *Table) HostAddresses() map[netip.Addr]bool {
	all, err := ruleset.LocalAddresses(t.routes)
	if err != nil {
		t.log.Error("the addresses of the host are not known", "error", err)
	}
	maps.DeleteFunc(all, func(a netip.Addr, _ bool) bool { return a.IsLoopback() })
	return all
}

// bridgeChanged is told of each interface that comes or changes, or with no name that something was lost.
func (t *Table) bridgeChanged(name string, mac net.HardwareAddr) {
	if name == "" {
		name, mac = t.cfg.Bridge.Name, t.bridgeMAC()
	}
	if name != t.cfg.Bridge.Name || len(mac) != 6 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shape == nil || t.unbridged != nil || bytes.Equal(mac, t.site.mac) {
		return
	}
	t.site.mac = mac
	t.shape = shapeOf(t.site)
	if err := t.sync(); err != nil {
		t.log.Error("the rules of services do not fit the bridge", "bridge", name, "error", err)
	}
}
