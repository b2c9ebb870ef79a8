package node

import (
	"context"
	"errors"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/netpolicy"
	"monopod.dev/monopod/internal/network"
)

// guard tells the role that enforces policies whose the addresses of sandboxes are.
type guard struct{ policies *netpolicy.Role }

var _ network.Guard = guard{}

// Connecting implements network.Guard.
func (g guard) Connecting(e network.Endpoint) func(context.Context) error {
	return g.policies.Connecting(netpolicy.Endpoint{
		SandboxID: e.SandboxID, Namespace: e.Pod.Namespace, Name: e.Pod.Name, UID: types.UID(e.Pod.UID), Addresses: e.Addresses,
	})
}

// Disconnected implements network.Guard.
func (g guard) Disconnected(gone ...ids.SandboxID) { g.policies.Disconnected(gone...) }

// policiesRole enforces network policies for pods of the built-in network. The runtime opens it, whose network asks it.
type policiesRole struct {
	*process
	// wanted: this process knows an API server, by kube, from when after is closed; nil: it is another process's, and is tried until it answers.
	wanted   bool
	kube     func() *rest.Config
	after    func() <-chan struct{}
	enforcer *netpolicy.Role // nil: nobody here enforces
}

func (r *policiesRole) role() role {
	return role{name: "network policies", run: r.run, remove: r.remove}
}

func (r *policiesRole) config() netpolicy.Config {
	return netpolicy.Config{Networks: r.networks, NodeName: r.Config.NodeName, Log: r.Log.With("role", "netpolicy")}
}

// open opens it where it is wanted, for the network to ask. Where it is not the rules of an earlier run go: nobody would tell them of new pods.
func (r *policiesRole) open(ctx context.Context) (network.Guard, error) {
	if !r.wanted || r.Config.Network.NetworkPolicy == config.Disabled {
		return nil, r.remove(ctx)
	}
	enforcer, err := netpolicy.New(ctx, r.config())
	if err != nil {
		// The bridge cannot be without what is missing here, and CNI needs neither.
		r.Log.Error("network policies are not enforced", "error", err)
		return nil, nil
	}
	r.enforcer = enforcer
	return guard{enforcer}, nil
}

func (r *policiesRole) run(ctx context.Context) error {
	if r.enforcer == nil || r.after != nil && !await(ctx, r.after()) {
		return idle(ctx)
	}
	return r.enforcer.Run(ctx, r.kube())
}

func (r *policiesRole) close() {
	if r.enforcer != nil {
		r.enforcer.Close()
	}
}

// remove takes the rules away. A kernel that cannot have them has none.
func (r *policiesRole) remove(ctx context.Context) error {
	if networksAreAnothers(r.Config) {
		return nil
	}
	err := netpolicy.Remove(ctx, r.config())
	if errdefs.IsFailedPrecondition(err) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	return err
}
