package node

import (
	"context"
	"errors"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/netpolicy"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/links"
)

// guard tells the role that enforces policies whose the addresses of sandboxes are.
type guard struct{ policies *netpolicy.Role }

var _ network.Guard = guard{}

// Connecting implements network.Guard.
func (g guard) Connecting(e network.Endpoint) func(context.Context) error {
	return g.policies.Connecting(netpolicy.Endpoint{
		SandboxID: e.SandboxID, Namespace: e.Pod.Namespace, Name: e.Pod.Name, UID: e.Pod.UID, Addresses: e.Addresses,
	})
}

// Disconnected implements network.Guard.
func (g guard) Disconnected(sandboxIDs ...string) { g.policies.Disconnected(sandboxIDs...) }

func (o *Options) policies() netpolicy.Config {
	bridge := o.Config.Network.Bridge
	return netpolicy.Config{Bridge: bridge, PortGroup: links.PortGroup(bridge), NodeName: o.Config.NodeName, Log: o.Log.With("role", "netpolicy")}
}

// newPolicies opens the role where it is wanted. Where it is not the rules of an earlier run go: nobody would tell them of new pods.
func (o *Options) newPolicies(ctx context.Context, wanted bool) (*netpolicy.Role, network.Guard, error) {
	if !wanted || o.Config.Network.NetworkPolicy == config.Disabled {
		return nil, nil, o.removePolicies(ctx)
	}
	role, err := netpolicy.New(ctx, o.policies())
	if err != nil {
		// The bridge cannot be without what is missing here, and CNI needs neither.
		o.Log.Error("network policies are not enforced", "error", err)
		return nil, nil, nil
	}
	return role, guard{role}, nil
}

// removePolicies takes the rules away. A kernel that cannot have them has none.
func (o *Options) removePolicies(ctx context.Context) error {
	if o.bridgeIsAnothers() {
		return nil
	}
	err := netpolicy.Remove(ctx, o.policies())
	if errdefs.IsFailedPrecondition(err) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	return err
}

// enforce runs the role, if there is one, from when the API server is ready; nil: it is somebody else's, and is tried until it answers.
func (r *runtimeRole) enforce(ready <-chan struct{}, kube *rest.Config) func(context.Context) error {
	return func(ctx context.Context) error {
		if r.policies == nil || ready != nil && !await(ctx, ready) {
			<-ctx.Done()
			return nil
		}
		return r.policies.Run(ctx, kube)
	}
}
