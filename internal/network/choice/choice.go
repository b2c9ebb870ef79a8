// Package choice is the network of a node that can connect sandboxes in two ways: by the host's CNI configuration, and by the
// built-in bridge.
//
// A new sandbox is connected by CNI whenever the configured directory holds a configuration, also one with faults: a node whose
// configuration is just being written must not connect pods elsewhere. Else it is connected by the bridge. What has connected
// a sandbox disconnects it, whatever is configured then. The bridge is made on the host when the first sandbox needs it.
package choice

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/bridge"
	"monopod.dev/monopod/internal/network/cni"
)

// The modes.
const (
	Auto   = "auto"   // CNI where it is configured, else the bridge
	Bridge = "bridge" // always the bridge
	CNI    = "cni"    // always CNI; without a configuration only pods in the node's network can run
)

// Config is what a network is made of.
type Config struct {
	Mode   string
	Bridge bridge.Config
	CNI    cni.Config
	Log    *slog.Logger
}

// Network is the network of one node. All methods are safe for concurrent use.
type Network struct {
	cfg Config
	log *slog.Logger
	cni *cni.Network

	// making holds a token while the bridge is made, started, removed or closed, which takes its time. It is taken before mu, and whoever
	// needs no bridge waits for neither.
	making chan struct{}

	mu      sync.Mutex
	bridge  *bridge.Bridge // nil: it cannot be, or could not when that was tried
	started bool
	last    string // what the last new sandbox was connected by, or would have been
}

var _ network.Network = (*Network)(nil)

// New reads what is stored of both networks, and changes nothing on the host. A bridge that cannot be is an error only where
// it is needed.
func New(ctx context.Context, cfg Config) (*Network, error) {
	if cfg.Mode == Bridge {
		cfg.CNI.ConfDir = "" // what CNI has connected earlier is disconnected all the same
	}
	n := &Network{cfg: cfg, log: cfg.Log, making: make(chan struct{}, 1)}
	var err error
	if n.cni, err = cni.New(ctx, cfg.CNI); err != nil {
		return nil, err
	}
	if n.bridge, err = bridge.New(ctx, cfg.Bridge); err == nil {
		return n, nil
	}
	if !n.byCNI(ctx) {
		n.cni.Close()
		return nil, err
	}
	n.log.InfoContext(ctx, "there is no built-in bridge, and CNI needs none", "reason", err)
	return n, nil
}

// byCNI says that new sandboxes are connected by CNI.
func (n *Network) byCNI(ctx context.Context) bool {
	by := Bridge
	if n.cfg.Mode == CNI || n.cfg.Mode == Auto && n.cni.Present() {
		by = CNI
	}
	n.mu.Lock()
	before, b := n.last, n.bridge
	n.last = by
	n.mu.Unlock()
	if by != before {
		n.log.Info("how new sandboxes are connected", "by", by, "before", before, "mode", n.cfg.Mode)
		if by == CNI && b != nil { // else whoever makes it finds what was chosen
			n.share(ctx, b)
		}
	}
	return by == CNI
}

// share tells the bridge that there are or will be pods of CNI: they are not on the bridge, and their packets are forwarded, too.
func (n *Network) share(ctx context.Context, b *bridge.Bridge) {
	if err := b.ShareForwarding(ctx); err != nil {
		n.log.ErrorContext(ctx, "packets of pods that CNI connects may be dropped", "error", err)
	}
}

// Start makes what new sandboxes need. It is idempotent.
func (n *Network) Start(ctx context.Context) error {
	if n.byCNI(ctx) {
		return nil
	}
	_, err := n.theBridge(ctx)
	return err
}

// theBridge returns the bridge, which is on the host then. Who needs it while it is being made waits for that.
func (n *Network) theBridge(ctx context.Context) (*bridge.Bridge, error) {
	if b, ok := n.onHost(); ok {
		return b, nil
	}
	select {
	case n.making <- struct{}{}:
		defer func() { <-n.making }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b, ok := n.onHost()
	if ok {
		return b, nil
	}
	if b == nil { // what was in its way may have gone
		var err error
		b, err = bridge.New(ctx, n.cfg.Bridge)
		n.mu.Lock()
		n.bridge = b
		shared := n.last == CNI
		n.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if shared {
			n.share(ctx, b)
		}
	}
	if err := b.Start(ctx); err != nil {
		return nil, err
	}
	if err := updateRanges(ctx, b, n.cni.PodCIDR()); err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.started = true
	n.mu.Unlock()
	return b, nil
}

// onHost returns the bridge as it is, or nil, and whether it is on the host.
func (n *Network) onHost() (b *bridge.Bridge, started bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bridge, n.bridge != nil && n.started
}

// Gateways are the addresses of the host at which pods of the built-in network reach it; none where CNI connects pods.
func (n *Network) Gateways(ctx context.Context) []netip.Addr {
	if b := n.known(); b != nil && !n.byCNI(ctx) {
		return b.Gateways()
	}
	return nil
}

// known returns the bridge as it is, or nil.
func (n *Network) known() *bridge.Bridge {
	b, _ := n.onHost()
	return b
}

// Setup connects a sandbox: one that is connected by what it was, a new one by what is chosen now.
func (n *Network) Setup(ctx context.Context, req network.Request) (network.Result, error) {
	b := n.known()
	if n.cni.Has(req.SandboxID) || n.byCNI(ctx) && (b == nil || !b.Has(req.SandboxID)) {
		if !n.cni.Has(req.SandboxID) {
			if err := network.RefuseOwn(req, n.cfg.Bridge.OwnPorts); err != nil {
				return network.Result{}, err
			}
		}
		return n.cni.Setup(ctx, req)
	}
	b, err := n.theBridge(ctx)
	if err != nil {
		return network.Result{}, err
	}
	return b.Setup(ctx, req)
}

// Prepare does of Setup what can be done before there is a network namespace. A plugin of CNI has nothing of that kind.
func (n *Network) Prepare(ctx context.Context, req network.Request) {
	if n.cni.Has(req.SandboxID) || n.byCNI(ctx) {
		return
	}
	if b, err := n.theBridge(ctx); err == nil {
		b.Prepare(ctx, req)
	}
}

// Teardown disconnects a sandbox. It is idempotent.
func (n *Network) Teardown(ctx context.Context, sandboxID ids.SandboxID) error {
	if n.cni.Has(sandboxID) {
		return n.cni.Teardown(ctx, sandboxID)
	}
	if b := n.known(); b != nil {
		return b.Teardown(ctx, sandboxID)
	}
	return nil
}

// split tells the sandboxes that CNI has connected from the others.
func (n *Network) split(sandboxes map[ids.SandboxID]string) (byCNI, others map[ids.SandboxID]string) {
	byCNI, others = map[ids.SandboxID]string{}, map[ids.SandboxID]string{}
	for id, path := range sandboxes {
		if n.cni.Has(id) {
			byCNI[id] = path
		} else {
			others[id] = path
		}
	}
	return byCNI, others
}

// Reconcile makes both networks agree with the sandboxes that live, by id, with the paths of their network namespaces. A
// sandbox that neither has a record of is the bridge's, which reads its address from the namespace; where new ones are
// connected by CNI, nobody knows whose it is, and it is left as it is. So is one whose path is empty, with what it has.
func (n *Network) Reconcile(ctx context.Context, live map[ids.SandboxID]string) error {
	byCNI, others := n.split(live)
	errs := []error{n.cni.Reconcile(ctx, byCNI)}
	b := n.known()
	if b != nil && len(byCNI) > 0 {
		n.share(ctx, b)
	}
	if n.byCNI(ctx) {
		for id := range others {
			if b == nil || !b.Has(id) {
				n.log.ErrorContext(ctx, "nobody knows what has connected a living sandbox; its network is left as it is", "sandbox", id)
				delete(others, id)
			}
		}
	}
	if len(others) > 0 {
		var err error
		if b, err = n.theBridge(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	if b != nil {
		errs = append(errs, b.Reconcile(ctx, others))
	}
	return errors.Join(errs...)
}

// Status is nil when new sandboxes can be connected.
func (n *Network) Status(ctx context.Context) error {
	if n.byCNI(ctx) {
		return n.cni.Status(ctx)
	}
	b, err := n.theBridge(ctx)
	if err != nil {
		return err
	}
	return b.Status(ctx)
}

// UpdatePodCIDR takes the ranges that a cluster has given to this node. The bridge does not get them while CNI is chosen, whose
// plugins have them then.
func (n *Network) UpdatePodCIDR(ctx context.Context, ranges []netip.Prefix) error {
	if n.byCNI(ctx) {
		return n.cni.UpdatePodCIDR(ctx, ranges)
	}
	b, err := n.theBridge(ctx)
	if err != nil {
		return err
	}
	if err := updateRanges(ctx, b, ranges); err != nil {
		return err
	}
	return n.cni.UpdatePodCIDR(ctx, ranges)
}

func updateRanges(ctx context.Context, b *bridge.Bridge, ranges []netip.Prefix) error {
	if len(ranges) == 0 {
		return nil
	}
	return b.UpdatePodCIDR(ctx, ranges)
}

// InterfaceStats reads the counters of the sandboxes' interfaces: ids to the paths of their network namespaces.
func (n *Network) InterfaceStats(ctx context.Context, sandboxes map[ids.SandboxID]string) (map[ids.SandboxID][]network.InterfaceStat, error) {
	byCNI, others := n.split(sandboxes)
	all, err := n.cni.InterfaceStats(ctx, byCNI)
	b := n.known()
	if b == nil || len(others) == 0 {
		return all, err
	}
	more, berr := b.InterfaceStats(ctx, others)
	for id, s := range more {
		all[id] = s
	}
	return all, errors.Join(err, berr)
}

// Remove takes everything away that both networks have made on the host and have a record of.
func (n *Network) Remove(ctx context.Context) error {
	err := n.cni.Remove(ctx)
	n.making <- struct{}{}
	defer func() { <-n.making }()
	b := n.known()
	if b == nil {
		return err // one that could not be has made nothing
	}
	n.mu.Lock()
	n.started = false
	n.mu.Unlock()
	return errors.Join(err, b.Remove(ctx))
}

// Warnings tells what this host cannot give pods of the built-in network.
func (n *Network) Warnings() []string {
	if b := n.known(); b != nil {
		return b.Warnings()
	}
	return nil
}

// Close gives what the process holds of both back. It changes nothing on the host.
func (n *Network) Close() {
	n.cni.Close()
	n.making <- struct{}{}
	defer func() { <-n.making }()
	if b := n.known(); b != nil {
		b.Close()
	}
}
