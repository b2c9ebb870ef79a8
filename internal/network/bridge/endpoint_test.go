package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/test/harness"
)

// doorman is a guard that notes what it is told.
type doorman struct {
	mu     sync.Mutex
	known  map[ids.SandboxID]network.Endpoint
	refuse error
	// met is called when a sandbox waits.
	met func(network.Endpoint)
}

func (d *doorman) Connecting(e network.Endpoint) func(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[e.SandboxID] = e
	return func(context.Context) error {
		if d.met != nil {
			d.met(e)
		}
		return d.refuse
	}
}

func (d *doorman) Disconnected(gone ...ids.SandboxID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range gone {
		delete(d.known, id)
	}
}

func (d *doorman) get(id ids.SandboxID) (network.Endpoint, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.known[id]
	return e, ok
}

// TestGuard: the guard knows whose an address is before there is an interface with it, until there is none, and over a restart; and a sandbox whose guard
// refuses is not connected.
func TestGuard(t *testing.T) {
	h := newHost(t)
	g := &doorman{known: map[ids.SandboxID]network.Endpoint{}}
	cfg := Config{Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}, DB: h.openDB("db"), Guard: g}
	b := h.bridge(cfg)
	pod := network.PodInfo{Namespace: "shop", Name: "web", UID: "u1"}
	req := network.Request{SandboxID: "s1", NetNS: h.sandbox("s1"), Pod: pod}
	b.Prepare(t.Context(), req)
	early, ok := g.get("s1")
	if !ok || early.Pod != pod || len(early.Addresses) != 2 {
		t.Fatalf("after Prepare the guard knows %+v", early)
	}
	res, err := b.Setup(t.Context(), req)
	h.must(err)
	if !slices.Equal(res.IPs, early.Addresses) {
		t.Errorf("the sandbox has %v, the guard was told %v", res.IPs, early.Addresses)
	}
	g.refuse = errors.New("not yet")
	late := network.Request{SandboxID: "s2", NetNS: h.sandbox("s2"), Pod: network.PodInfo{Namespace: "shop", Name: "db", UID: "u2"}}
	if _, err := b.Setup(t.Context(), late); !errors.Is(err, g.refuse) {
		t.Errorf("a sandbox whose guard refuses: %v", err)
	}
	if _, ok := g.get("s2"); ok || b.ledger.InUse() != 1 {
		t.Error("a sandbox whose guard refused has an address")
	}
	// A sandbox that lived before the process did is not asked about again, but the guard is told.
	g.known = map[ids.SandboxID]network.Endpoint{}
	again := h.bridge(cfg)
	if e, ok := g.get("s1"); !ok || e.Pod != pod || !slices.Equal(e.Addresses, early.Addresses) {
		t.Errorf("after a restart the guard knows %+v", e)
	}
	h.must(again.Reconcile(t.Context(), map[ids.SandboxID]string{"s1": req.NetNS}))
	h.must(again.Teardown(t.Context(), "s1"))
	h.drop(req.NetNS)
	h.inUse(again)
	harness.Eventually(t, "the guard is told that a sandbox is gone", func() (bool, string) { // right after its addresses are free
		e, ok := g.get("s1")
		return !ok, fmt.Sprintf("it knows %+v", e)
	})
}
