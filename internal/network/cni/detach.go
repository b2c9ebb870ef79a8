package cni

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
)

// Teardown does the DEL of a sandbox and forgets it. It needs no namespace, and is idempotent. It is not cut short when its
// client goes: the DEL is bounded by itself.
func (n *Network) Teardown(ctx context.Context, sandboxID ids.SandboxID) error {
	n.cancelCheck(sandboxID)
	defer n.locks.Wait(sandboxID)()
	a, err := n.table.Get(string(sandboxID))
	if errdefs.IsNotFound(err) {
		n.drop(sandboxID)
		return nil
	}
	if err == nil {
		err = n.detach(context.WithoutCancel(ctx), sandboxID, &a)
	}
	if err != nil {
		return fmt.Errorf("network of sandbox %s: %w", sandboxID, err)
	}
	return nil
}

// detach does the DEL. It is called with the sandbox's lock held.
func (n *Network) detach(ctx context.Context, id ids.SandboxID, a *attachment) error {
	if !a.connected() {
		killADD(id)
	}
	list, err := a.list()
	if err != nil {
		return err
	}
	if err := n.writeCache(id, a); err != nil {
		return err
	}
	if err := n.del(ctx, id, a, list); err != nil {
		return fmt.Errorf("CNI network %q (%s): %w", a.Network, a.File, err)
	}
	if err := failpoint.Hit("network/cni/deleted"); err != nil {
		return err
	}
	return n.forget(id, a)
}

// del runs the DEL of a list's plugins.
func (n *Network) del(ctx context.Context, id ids.SandboxID, a *attachment, list *libcni.NetworkConfigList) error {
	netns := a.NetNS
	if !living(netns) {
		netns = "" // what the specification wants for a namespace that is gone
	}
	n.quiet.RLock()
	defer n.quiet.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Bounds.Del)
	defer cancel()
	err := n.lib.DelNetworkList(ctx, list, a.arguments(id, netns))
	if unknown(err, list) {
		return nil
	}
	return err
}

// abandon undoes an ADD that has failed. Each plugin gets its DEL, also when that of another one fails: those that did their
// part must not leak it. A plugin that says for itself that it cannot, most often for what has made the ADD fail, is
// believed: kept, the attachments of a node whose configuration is wrong would become more with each try.
func (n *Network) abandon(ctx context.Context, id ids.SandboxID, a *attachment) error {
	list, err := a.list()
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range slices.Backward(list.Plugins) {
		one := *list
		one.Plugins = []*libcni.PluginConfig{p}
		err := n.del(ctx, id, a, &one)
		var said *types.Error
		if errors.As(err, &said) && !errdefs.IsUnavailable(err) {
			n.log.WarnContext(ctx, "a CNI plugin could not undo what it could not do", "sandbox", id, "network", a.Network, "error", err)
			continue
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("undoing it: %w", err)
	}
	if err := failpoint.Hit("network/cni/deleted"); err != nil {
		return err
	}
	return n.forget(id, a)
}

// unknown says that the only plugin of a list does not know the sandbox: there is nothing left to delete. In a chain the others may
// have something left.
func unknown(err error, list *libcni.NetworkConfigList) bool {
	var said *types.Error
	return len(list.Plugins) == 1 && errors.As(err, &said) && said.Code == types.ErrUnknownContainer
}

// living says that there is a namespace at the path, and not the plain file that a reboot leaves of a pin.
func living(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.NSFS_MAGIC
}
