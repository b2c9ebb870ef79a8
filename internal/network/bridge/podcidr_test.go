package bridge

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/podnet"
)

func TestUpdatePodCIDR(t *testing.T) {
	h := newHost(t)
	outside, host, machine := h.outside("192.168.77.0/30")
	h.serve(outside, "0.0.0.0:80")
	db := h.openDB("state.db")
	cfg := Config{DB: db, Network: podnet.Network{Name: "mpt0", Ranges: testRanges}}
	b := h.bridge(cfg)
	old, young := h.sandbox("old"), h.sandbox("young")
	h.connectPorts(b, "old", old, network.HostPort{Protocol: "TCP", HostIP: host, HostPort: 8080, ContainerPort: 80})
	for range 2 { // idempotent
		h.must(b.UpdatePodCIDR(t.Context(), ranges("fd00:202::/64", "10.202.0.0/24")))
	}
	if ips := h.connectPorts(b, "old", old, network.HostPort{Protocol: "TCP", HostIP: host, HostPort: 8080, ContainerPort: 80}); ips[0].String() != "10.201.0.2" || len(ips) != 1 {
		t.Errorf("the old sandbox has %v", ips)
	}
	ips := h.connectPorts(b, "young", young)
	if len(ips) != 2 || ips[0].String() != "10.202.0.2" || ips[1].String() != "fd00:202::2" {
		t.Errorf("the young sandbox has %v", ips)
	}
	h.serve(old, ":80")
	works := func(when string) {
		t.Helper()
		for from, to := range map[string]string{old: machine.String() + ":80", young: machine.String() + ":80", outside: host.String() + ":8080"} {
			if _, err := h.tryAsk(from, to); err != nil {
				t.Errorf("%s: from %s to %s: %v", when, from, to, err)
			}
		}
		if _, err := h.tryAsk(young, "10.201.0.2:80"); err != nil {
			t.Errorf("%s: from the young to the old: %v", when, err)
		}
	}
	works("updated")
	for name, c := range map[string]struct {
		ranges []string
		is     func(error) bool
		says   string
	}{
		"none":                     {nil, errdefs.IsInvalidArgument, "no pod range"},
		"two of a family":          {[]string{"10.3.0.0/24", "10.4.0.0/24"}, errdefs.IsInvalidArgument, "one family"},
		"too small":                {[]string{"10.3.0.0/31"}, errdefs.IsInvalidArgument, "10.3.0.0/31"},
		"multicast":                {[]string{"224.3.0.0/24"}, errdefs.IsInvalidArgument, "224.3.0.0/24"},
		"another's":                {[]string{"192.168.0.0/16"}, errdefs.IsFailedPrecondition, "192.168.77.1/30 of up0"},
		"overlaps old pods' range": {[]string{"10.201.0.0/16"}, errdefs.IsFailedPrecondition, "10.201.0.0/24"},
	} {
		if err := b.UpdatePodCIDR(t.Context(), ranges(c.ranges...)); err == nil || !c.is(err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// It holds over a restart.
	b = h.bridge(cfg)
	h.must(b.Reconcile(t.Context(), map[ids.SandboxID]string{"old": old, "young": young}))
	if got := b.ledger.Ranges(); !slices.Equal(got, ranges("10.202.0.0/24", "fd00:202::/64")) {
		t.Errorf("ranges after a restart: %v", got)
	}
	works("restarted")
	// The old range's gateway goes with its last sandbox, at the next start; another configuration wins over an update.
	h.must(b.Teardown(t.Context(), "old"))
	h.drop(old)
	h.inUse(b, "young")
	b = h.bridge(Config{DB: db, Network: podnet.Network{Name: "mpt0", Ranges: ranges("10.203.0.0/24")}})
	want := ranges("10.203.0.1/32", "10.202.0.1/32", "fd00:202::1/128")
	if got := b.host.gateways(); !slices.Equal(got[:1], want[:1]) || len(got) != len(want) {
		t.Errorf("gateways %v, want %v", got, want)
	}
	third := h.sandbox("third")
	if ips := h.connectPorts(b, "third", third); len(ips) != 1 || ips[0].String() != "10.203.0.2" {
		t.Errorf("the third sandbox has %v", ips)
	}
}
