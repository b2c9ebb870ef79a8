package node

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/host/sockdiag"
	"monopod.dev/monopod/internal/network/links"
	"monopod.dev/monopod/internal/network/rules"
	"monopod.dev/monopod/internal/proxy"
	"monopod.dev/monopod/internal/proxy/table"
)

// nodesMask is the part of an interface group that says that it is a node's, of whichever node of the host: of a bridge (links.BridgeGroup), or of the host's ends of
// pods' interfaces (links.PortGroup).
const nodesMask = 0xff000000

// proxyTable is the name of the table of services. Nodes of one host have bridges of different names.
func (o *Options) proxyTable() string { return rules.ServicesTable(o.Config.Network.Bridge) }

// proxyDir is where it is written down which addresses of services the host has.
func (o *Options) proxyDir() string { return filepath.Join(o.Config.DataDir, "services") }

// newProxy makes the role that leads packets for services to their endpoints; nil where it is not to run: then what an earlier process has left is removed, so that
// somebody else can do it. bridged says that pods of this process are on the bridge.
func (o *Options) newProxy(ctx context.Context, kube *rest.Config, bridged bool) (*proxy.Proxy, error) {
	mode := o.Config.Network.ServiceProxy
	if mode != config.Enabled && (mode != config.Auto || !bridged) {
		if err := o.removeServices(ctx); err != nil {
			o.Log.WarnContext(ctx, "rules of services that an earlier process may have left are not removed", "error", err)
		}
		return nil, nil
	}
	if err := os.MkdirAll(o.proxyDir(), 0o700); err != nil { // see servesAnothers
		return nil, err
	}
	own := rest.CopyConfig(kube)
	// What it asks is a few lists and watches, which are not to wait for what the agent asks.
	own.QPS = -1
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, err
	}
	var ports []proxy.OwnPort
	for _, p := range o.ownPorts() {
		ports = append(ports, proxy.OwnPort{Protocol: p.Protocol, Port: p.Port})
	}
	return proxy.New(proxy.Config{
		Kube: client, NodeName: o.Config.NodeName, Table: o.proxyTable(),
		Ports:     table.Ports{Group: links.PortGroup(o.Config.Network.Bridge), Nodes: links.BridgeGroup & nodesMask, Mask: nodesMask},
		Balancers: config.LoadBalancerRanges(o.Config.Network), External: config.ExternalRanges(o.Config.Services), Closed: config.ClusterRanges(o.Config),
		OwnPorts: ports, Listens: proxy.Listener, Dir: o.proxyDir(), Log: o.Log.With("role", "proxy"),
	}), nil
}

// removeServices takes the rules of services away, of a proxy that does not run any more.
func (o *Options) removeServices(ctx context.Context) error {
	if o.servesAnothers() {
		return nil
	}
	return proxy.Remove(ctx, o.proxyTable(), o.proxyDir())
}

// endServices does so when the process ends.
func (o *Options) endServices() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	return o.removeServices(ctx)
}

// listener says which process of this machine listens at a port of it.
func listener(protocol corev1.Protocol, port int32) string {
	return sockdiag.Listener(strings.ToLower(string(protocol)), uint16(port))
}
