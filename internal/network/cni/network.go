package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/kit/keyed"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/state"
)

// Bounds of the commands, each for all plugins of a list together. A client of CRI waits two minutes.
type Bounds struct{ Add, Del, Check, GC, Status time.Duration }

// DefaultBounds are those that are used where none are given.
var DefaultBounds = Bounds{Add: 60 * time.Second, Del: 30 * time.Second, Check: 15 * time.Second, GC: 15 * time.Second, Status: 5 * time.Second}

// Config says which network to use.
type Config struct {
	DB *state.DB
	// ConfDir holds the configurations; it need not exist. Empty: there are none, and only sandboxes that are connected already
	// are served. BinDirs hold the plugins; the first that has one wins.
	ConfDir string
	BinDirs []string
	// CacheDir is a folder of this network's own, for this boot.
	CacheDir string
	Bounds   Bounds
	Log      *slog.Logger
}

// Network is the CNI network of one node. All methods are safe for concurrent use.
type Network struct {
	cfg      Config
	log      *slog.Logger
	lib      *libcni.CNIConfig
	table    state.Table[attachment]
	settings state.Table[[]netip.Prefix]
	locks    keyed.Lock[ids.SandboxID] // by sandbox: the operations on one come one after another
	status   statusCache

	// quiet is held for reading by ADD and DEL, and for writing by GC: the plugins must not see both at once.
	quiet sync.RWMutex

	// ctx ends with Close, and background counts what ends with it.
	ctx        context.Context
	end        context.CancelFunc
	background sync.WaitGroup
	// recovery counts what Reconcile has begun.
	recovery sync.WaitGroup

	mu     sync.Mutex
	known  map[ids.SandboxID]string // the sandboxes with a record, and the names of their networks
	checks map[ids.SandboxID]context.CancelFunc
	ranges []netip.Prefix

	updateMu sync.Mutex // one change of the ranges at a time

	confMu sync.Mutex
	conf   *configuration // the last one that was read
}

// settingRanges is the key of the pod ranges that a cluster has given to this node, in the table "network-cni-settings".
const settingRanges = "podCIDRs"

// New reads the stored attachments and the configuration, and watches the directory. It runs no plugin.
func New(ctx context.Context, cfg Config) (*Network, error) {
	if len(cfg.BinDirs) == 0 || cfg.CacheDir == "" {
		return nil, fmt.Errorf("CNI: folders of plugins and one for the cache are needed, got %q and %q: %w", cfg.BinDirs, cfg.CacheDir, errdefs.ErrInvalidArgument)
	}
	if cfg.Bounds == (Bounds{}) {
		cfg.Bounds = DefaultBounds
	}
	n := &Network{cfg: cfg, log: cfg.Log, table: state.NewTable[attachment](cfg.DB, "network-cni"),
		settings: state.NewTable[[]netip.Prefix](cfg.DB, "network-cni-settings"),
		known:    map[ids.SandboxID]string{}, checks: map[ids.SandboxID]context.CancelFunc{}}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	n.lib = libcni.NewCNIConfigWithCacheDir(cfg.BinDirs, cfg.CacheDir, &executor{log: n.log})
	if err := n.load(ctx); err != nil {
		return nil, err
	}
	// What it starts lives until Close, not until the end of a start.
	n.ctx, n.end = context.WithCancel(context.WithoutCancel(ctx))
	n.refresh()
	n.watch()
	return n, nil
}

// load reads the records. What the table has lost is taken from libcni's files.
func (n *Network) load(ctx context.Context) error {
	recs, err := n.table.List()
	if err != nil {
		n.log.ErrorContext(ctx, "a stored CNI attachment cannot be read", "error", err)
	}
	copies, err := n.readCache()
	if err != nil {
		n.log.ErrorContext(ctx, "a copy of a CNI attachment cannot be read", "error", err)
	}
	for id, a := range copies {
		rec, ok := recs[id]
		switch {
		case !ok:
			n.log.WarnContext(ctx, "the record of a CNI attachment was lost, it is taken from its copy", "sandbox", id, "network", a.Network)
		case !rec.connected() && a.connected() && a.Network == rec.Network:
			rec.Result = a.Result // the ADD had come to its end when a crash came
			a = rec
		default:
			continue
		}
		if err := n.table.Put(id, a); err != nil {
			return fmt.Errorf("CNI: %w", err)
		}
		recs[id] = a
	}
	for id, a := range recs {
		n.known[ids.SandboxID(id)] = a.Network
	}
	n.ranges, err = n.settings.Get(settingRanges)
	if err != nil && !errdefs.IsNotFound(err) {
		n.log.ErrorContext(ctx, "the stored pod ranges cannot be read", "error", err)
	}
	return nil
}

// Close ends what runs in the background. It changes nothing on the host.
func (n *Network) Close() {
	n.end()
	n.background.Wait()
}

var _ network.Network = (*Network)(nil)

// Has says that the sandbox is connected by this network, or may be.
func (n *Network) Has(sandboxID ids.SandboxID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.known[sandboxID]
	return ok
}

// Present says that the directory holds a configuration now, though it may be one that cannot be used.
func (n *Network) Present() bool { return n.refresh().present() }

// refresh reads the directory.
func (n *Network) refresh() *configuration {
	// Read under the lock: an older state must not replace a newer one.
	n.confMu.Lock()
	defer n.confMu.Unlock()
	c := readDir(n.cfg.ConfDir)
	if c.same(n.conf) {
		return n.conf
	}
	n.conf = c
	if c.list != nil {
		n.log.Info("CNI configuration read", "network", c.list.Name, "file", c.file, "cniVersion", c.list.CNIVersion)
	}
	for _, f := range c.faults {
		n.log.Error("a CNI configuration cannot be used", "error", f)
	}
	return c
}

// store makes a record durable, then known.
func (n *Network) store(id ids.SandboxID, a *attachment) error {
	if err := n.table.Put(string(id), *a); err != nil {
		return fmt.Errorf("storing the CNI attachment: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[id] = a.Network
	return nil
}

func (n *Network) forget(id ids.SandboxID, a *attachment) error {
	if err := errors.Join(n.dropCache(id, a), n.table.Delete(string(id))); err != nil {
		return fmt.Errorf("forgetting the CNI attachment: %w", err)
	}
	n.drop(id)
	return nil
}

func (n *Network) drop(id ids.SandboxID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.known, id)
}

// sandboxes are those with a record, and the names of their networks.
func (n *Network) sandboxes() map[ids.SandboxID]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make(map[ids.SandboxID]string, len(n.known))
	for id, name := range n.known {
		all[id] = name
	}
	return all
}

// UpdatePodCIDR takes the ranges that a cluster has given to this node. Plugins with the capability ipRanges are told of them
// from the next sandbox on; others have theirs from their configuration.
func (n *Network) UpdatePodCIDR(_ context.Context, ranges []netip.Prefix) error {
	for _, p := range ranges {
		if !p.IsValid() {
			return fmt.Errorf("pod range %q is no range of addresses: %w", p, errdefs.ErrInvalidArgument)
		}
	}
	n.updateMu.Lock()
	defer n.updateMu.Unlock()
	if slices.Equal(n.PodCIDR(), ranges) {
		return nil
	}
	if err := n.settings.Put(settingRanges, ranges); err != nil { // only another update waits for the disk
		return fmt.Errorf("CNI: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ranges = slices.Clone(ranges)
	return nil
}

// PodCIDR returns the ranges of the last UpdatePodCIDR.
func (n *Network) PodCIDR() []netip.Prefix {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.ranges)
}

// Remove ends all attachments and forgets everything. It goes on after an error and returns all of them. An attachment whose
// DEL fails is in the error, and is forgotten all the same: a repeated Remove is not held up by what nobody can end.
func (n *Network) Remove(ctx context.Context) error {
	var errs []error
	for id := range n.sandboxes() {
		if err := n.Teardown(ctx, id); err != nil {
			a, _ := n.table.Get(string(id)) // one that cannot be read has no file of libcni's that is known
			errs = append(errs, err, n.forget(id, &a))
		}
	}
	if err := n.settings.Delete(settingRanges); err != nil {
		errs = append(errs, fmt.Errorf("CNI: %w", err))
	}
	return errors.Join(append(errs, os.RemoveAll(n.cfg.CacheDir))...)
}
