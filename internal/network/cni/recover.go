package cni

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
)

// Reconcile does the DEL of all sandboxes that do not live: live are those that do, by id, with the paths of their network
// namespaces; one whose path is empty keeps what it has, and is not asked about. In the background it then tells the plugins which attachments are valid (GC, from version 1.1.0 on) and
// asks them about each (CHECK, from 0.4.0 on); what they say is logged, and changes nothing. It goes on after an error and
// returns all.
func (n *Network) Reconcile(ctx context.Context, live map[ids.SandboxID]string) error {
	var errs []error
	checks := map[ids.SandboxID]string{}
	for id := range n.sandboxes() {
		if path, ok := live[id]; ok {
			if path != "" {
				checks[id] = path
			}
			continue
		}
		n.log.InfoContext(ctx, "ending the CNI attachment of a sandbox that is gone", "sandbox", id)
		errs = append(errs, n.Teardown(ctx, id))
	}
	n.recovery.Add(1)
	n.background.Go(func() {
		defer n.recovery.Done()
		if err := n.collect(n.ctx); err != nil {
			n.log.ErrorContext(ctx, "CNI GC failed", "error", err)
		}
		for id := range checks {
			if n.ctx.Err() != nil {
				return
			}
			if err := n.check(id); err != nil {
				n.log.WarnContext(ctx, "the CNI plugins say that the network of a sandbox is not as they have made it; if that is so, removing the pod makes it anew", "sandbox", id, "error", err)
			}
		}
	})
	return errors.Join(errs...)
}

// collect tells the plugins of the configured network which of its attachments are valid: those with a record, whatever their
// state.
func (n *Network) collect(ctx context.Context) error {
	conf := n.refresh()
	if conf.list == nil {
		return nil
	}
	n.quiet.Lock()
	defer n.quiet.Unlock()
	valid := []types.GCAttachment{} // not nil: none are valid is an answer too
	for id, name := range n.sandboxes() {
		if name == conf.list.Name {
			valid = append(valid, types.GCAttachment{ContainerID: string(id), IfName: network.InterfaceName})
		}
	}
	// libcni would do the DEL of what its cache has and is not valid. The records know better, with which configuration: it
	// gets a folder without a cache.
	lib := libcni.NewCNIConfigWithCacheDir(n.cfg.BinDirs, n.cfg.CacheDir+"/none", &executor{log: n.log})
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Bounds.GC)
	defer cancel()
	if err := lib.GCNetworkList(ctx, conf.list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
		return fmt.Errorf("CNI network %q (%s): %w", conf.list.Name, conf.file, err)
	}
	return nil
}

// check runs CHECK for a sandbox. A Teardown that comes meanwhile cuts it short.
func (n *Network) check(id ids.SandboxID) error {
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.Bounds.Check)
	defer cancel()
	n.mu.Lock()
	n.checks[id] = cancel
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.checks, id)
	}()
	defer n.locks.Wait(id)()
	if !n.Has(id) || ctx.Err() != nil {
		return nil // it has gone meanwhile
	}
	a, err := n.table.Get(string(id))
	if err != nil || !a.connected() {
		return err
	}
	list, err := a.list()
	if err != nil || !atLeast(list, "0.4.0") {
		return err
	}
	if err := n.writeCache(id, &a); err != nil {
		return err
	}
	err = n.lib.CheckNetworkList(ctx, list, a.arguments(id, a.NetNS))
	if err == nil || errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return fmt.Errorf("CNI network %q (%s), CHECK: %w", a.Network, a.File, err)
}

func (n *Network) cancelCheck(id ids.SandboxID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if cancel := n.checks[id]; cancel != nil {
		cancel()
	}
}
