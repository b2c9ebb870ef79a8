package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types/create"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
)

// Setup connects the sandbox by the newest configuration: loopback up, then ADD. For a sandbox that is connected it returns the
// same again. When it fails it has done the DEL; where that has failed too, Teardown does it again.
//
// Errors: Unavailable (no valid configuration; a plugin asks to be tried later, or hangs), NotFound (no such namespace),
// InvalidArgument (an annotation, a name), FailedPrecondition (a plugin is missing; host ports that nobody maps).
func (n *Network) Setup(ctx context.Context, req network.Request) (network.Result, error) {
	if req.SandboxID == "" || req.NetNS == "" {
		return network.Result{}, fmt.Errorf("CNI: a sandbox id and a network namespace are needed, got %q and %q: %w",
			req.SandboxID, req.NetNS, errdefs.ErrInvalidArgument)
	}
	defer n.locks.Wait(req.SandboxID)()
	res, err := n.setup(ctx, req)
	if err != nil {
		return res, fmt.Errorf("network of sandbox %s: %w", req.SandboxID, err)
	}
	return res, nil
}

func (n *Network) setup(ctx context.Context, req network.Request) (network.Result, error) {
	old, err := n.table.Get(string(req.SandboxID))
	switch {
	case errdefs.IsNotFound(err):
	case err != nil:
		return network.Result{}, err
	case old.connected():
		return old.podResult()
	default: // an ADD that has not come to its end, in this run or an earlier one, and whose DEL has failed
		if err := n.detach(context.WithoutCancel(ctx), req.SandboxID, &old); err != nil {
			return network.Result{}, err
		}
	}
	conf := n.refresh()
	if err := conf.err(); err != nil {
		return network.Result{}, notReady(err)
	}
	a, err := n.prepare(conf, req)
	if err != nil {
		return network.Result{}, err
	}
	if !living(req.NetNS) {
		return network.Result{}, fmt.Errorf("%s is no network namespace: %w", req.NetNS, errdefs.ErrNotFound)
	}
	if err := n.store(req.SandboxID, a); err != nil {
		return network.Result{}, err
	}
	if err := failpoint.Hit("network/cni/persisted"); err != nil {
		return network.Result{}, err
	}
	res, err := n.attach(ctx, req.SandboxID, a, conf.list)
	if err != nil {
		err = fmt.Errorf("CNI network %q (%s): %w", a.Network, a.File, err)
		return network.Result{}, errors.Join(err, n.abandon(context.WithoutCancel(ctx), req.SandboxID, a))
	}
	if err := failpoint.Hit("network/cni/added"); err != nil {
		return network.Result{}, err
	}
	// A full disk here leaves the record without its result: the DEL does without.
	if err := n.store(req.SandboxID, a); err != nil {
		return network.Result{}, errors.Join(err, n.detach(context.WithoutCancel(ctx), req.SandboxID, a))
	}
	return res, nil
}

// prepare makes the record of what is to be done.
func (n *Network) prepare(conf *configuration, req network.Request) (*attachment, error) {
	maybe, err := cannot(capabilities(conf.list), conf.list.Plugins[0].Network.Type, req)
	if err != nil {
		return nil, fmt.Errorf("CNI network %q (%s): %w", conf.list.Name, conf.file, err)
	}
	if len(maybe) > 0 {
		n.log.Warn("no plugin of the CNI configuration has the capability for what the pod asks for; it may have means of its own",
			"network", conf.list.Name, "file", conf.file, "pod", req.Pod.Namespace+"/"+req.Pod.Name, "asked", strings.Join(maybe, ", "))
	}
	args, err := arguments(req)
	if err != nil {
		return nil, err
	}
	rc, err := runtimeConfig(req, n.PodCIDR())
	if err != nil {
		return nil, err
	}
	return &attachment{Network: conf.list.Name, File: conf.file, Config: conf.list.Bytes, NetNS: req.NetNS, Interface: network.InterfaceName,
		Args: args, Runtime: rc}, nil
}

// attach runs ADD, and puts the result into the record.
func (n *Network) attach(ctx context.Context, id ids.SandboxID, a *attachment, list *libcni.NetworkConfigList) (network.Result, error) {
	if err := loopbackUp(a.NetNS); err != nil {
		return network.Result{}, err
	}
	n.quiet.RLock()
	defer n.quiet.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Bounds.Add)
	defer cancel()
	begin := time.Now()
	res, err := n.lib.AddNetworkList(ctx, list, a.arguments(id, a.NetNS))
	if err != nil {
		return network.Result{}, err
	}
	out, err := podResult(res)
	if err != nil {
		return network.Result{}, err
	}
	if a.Result, err = json.Marshal(res); err != nil {
		return network.Result{}, err
	}
	n.log.DebugContext(ctx, "CNI ADD", "sandbox", id, "network", a.Network, "addresses", out.IPs, "time", time.Since(begin))
	return out, nil
}

func (a *attachment) podResult() (network.Result, error) {
	res, err := create.CreateFromBytes(a.Result)
	if err != nil {
		return network.Result{}, fmt.Errorf("the stored result of CNI network %q: %w", a.Network, err)
	}
	return podResult(res)
}
