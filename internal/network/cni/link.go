package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
)

// inside opens a netlink socket in a namespace; no thread is moved.
func inside(path string) (*netlink.Handle, error) {
	ns, err := netns.GetFromPath(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("network namespace %s: %w", path, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("%s is no network namespace that can be entered: %w", path, err)
	}
	return h, nil
}

// loopbackUp does what the plugin loopback does.
func loopbackUp(path string) error {
	h, err := inside(path)
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err == nil {
		err = h.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("loopback of %s: %w", path, err)
	}
	return nil
}

// InterfaceStats reads the counters of the interfaces in the sandboxes, but for loopback: sandbox ids to the paths of their
// network namespaces. One that is gone, or that this network has not connected, is left out; those that cannot be read are in the error, the others in the result.
func (n *Network) InterfaceStats(ctx context.Context, sandboxes map[ids.SandboxID]string) (map[ids.SandboxID][]network.InterfaceStat, error) {
	all := make(map[ids.SandboxID][]network.InterfaceStat, len(sandboxes))
	var errs []error
	for id, path := range sandboxes {
		if err := ctx.Err(); err != nil {
			return all, errors.Join(append(errs, err)...)
		}
		if !n.Has(id) || !living(path) {
			continue
		}
		stats, err := interfaceStats(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("network of sandbox %s: %w", id, err))
			continue
		}
		all[id] = stats
	}
	return all, errors.Join(errs...)
}

func interfaceStats(path string) ([]network.InterfaceStat, error) {
	h, err := inside(path)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return nil, err
	}
	var stats []network.InterfaceStat
	for _, l := range links {
		a := l.Attrs()
		if a.Flags&net.FlagLoopback != 0 || a.Statistics == nil {
			continue
		}
		s := a.Statistics
		stats = append(stats, network.InterfaceStat{Name: a.Name,
			RxBytes: s.RxBytes, RxPackets: s.RxPackets, RxErrors: s.RxErrors, RxDropped: s.RxDropped,
			TxBytes: s.TxBytes, TxPackets: s.TxPackets, TxErrors: s.TxErrors, TxDropped: s.TxDropped})
	}
	return stats, nil
}
