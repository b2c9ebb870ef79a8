package node

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/host/sockdiag"
	"monopod.dev/monopod/internal/proxy"
)

// proxyDir is where it is written down which addresses of services the host has.
func proxyDir(c *v1alpha1.NodeConfiguration) string { return filepath.Join(c.DataDir, "services") }

// proxyRole leads packets for services to their endpoints.
type proxyRole struct {
	*process
	// kube reaches the API server, from when after is closed; nil: it is another process's, and is tried until it answers.
	kube  func() *rest.Config
	after func() <-chan struct{}
	// bridged says that pods of this process are on the built-in network; nil: they are not.
	bridged func(context.Context) bool
	proxy   *proxy.Proxy // nil: another proxy does it
}

func (r *proxyRole) role() role {
	return role{name: "proxy", open: r.open, run: r.run, remove: r.remove}
}

// open makes the proxy where it is to run. Where it is not, what an earlier process has left is removed, so that another proxy can do it.
func (r *proxyRole) open(ctx context.Context) error {
	c := r.Config
	mode := c.Network.ServiceProxy
	if mode != config.Enabled && (mode != config.Auto || r.bridged == nil || !r.bridged(ctx)) {
		if err := r.remove(ctx); err != nil {
			r.Log.WarnContext(ctx, "rules of services that an earlier process may have left are not removed", "error", err)
		}
		return nil
	}
	if err := os.MkdirAll(proxyDir(c), 0o700); err != nil { // see servesAnothers
		return err
	}
	own := rest.CopyConfig(r.kube())
	// What it asks is a few lists and watches, which are not to wait for what the agent asks.
	own.QPS = -1
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return err
	}
	var ports []proxy.OwnPort
	for _, p := range r.ownPorts() {
		ports = append(ports, proxy.OwnPort{Protocol: p.Protocol, Port: p.Port})
	}
	r.proxy = proxy.New(proxy.Config{
		Kube: client, NodeName: c.NodeName, Networks: r.networks,
		Balancers: config.LoadBalancerRanges(c.Network), External: config.ExternalRanges(c.Services), Closed: config.ClusterRanges(c),
		OwnPorts: ports, Listens: proxy.Listener, Dir: proxyDir(c), Log: r.Log.With("role", "proxy"),
	})
	return nil
}

func (r *proxyRole) run(ctx context.Context) error {
	if r.proxy == nil {
		return idle(ctx)
	}
	if r.after != nil && !await(ctx, r.after()) {
		return nil
	}
	return r.proxy.Run(ctx)
}

// remove takes the rules of services away, of a proxy that does not run any more.
func (r *proxyRole) remove(ctx context.Context) error {
	if servesAnothers(r.Config) {
		return nil
	}
	return proxy.Remove(ctx, r.networks, proxyDir(r.Config))
}

// listener says which process of this machine listens at a port of it.
func listener(protocol corev1.Protocol, port int32) string {
	return sockdiag.Listener(strings.ToLower(string(protocol)), uint16(port))
}
