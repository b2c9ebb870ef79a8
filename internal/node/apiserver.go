package node

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"k8s.io/client-go/rest"

	"monopod.dev/monopod/internal/agent"
	"monopod.dev/monopod/internal/apiserver"
	"monopod.dev/monopod/internal/apiserver/etcd"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/controllers"
	"monopod.dev/monopod/internal/controllers/servicelb"
)

// apiRole is the API server, and what works on it with its own rights.
type apiRole struct {
	*process
	names *dnsRole
	// certified are the node's addresses that the first certificates are for.
	certified []string
	server    *apiserver.Server // nil: not open
	// nodeConfig reaches the API as the node does, over the same connections whoever asks.
	nodeConfig func() *rest.Config
}

func newAPIRole(p *process, names *dnsRole) *apiRole {
	a := &apiRole{process: p, names: names}
	a.nodeConfig = sync.OnceValue(func() *rest.Config { return a.server.NodeConfig(p.Config.NodeName) })
	return a
}

func (a *apiRole) role() role {
	return role{name: "apiserver", open: a.open, run: func(ctx context.Context) error { return a.server.Run(ctx) }, close: a.close}
}

func (a *apiRole) open(ctx context.Context) error {
	c := a.Config
	a.certified = nodeIPs(&c.Agent)
	quota, err := config.ParseSize(c.APIServer.EtcdQuota)
	if err != nil {
		return fmt.Errorf("apiServer.etcdQuota: %w", err)
	}
	services, err := serviceRanges(c)
	if err != nil {
		return err
	}
	var advertised netip.Addr
	if at := c.APIServer.AdvertiseAddress; at != "" {
		if advertised, err = netip.ParseAddr(at); err != nil {
			return err
		}
	}
	a.server, err = apiserver.New(ctx, apiserver.Config{
		ServiceCIDRs: services, DNS: a.names.addresses, AdvertiseAddress: advertised,
		Etcd:    etcd.RemoteConfig{Servers: c.APIServer.Etcd.Servers, CAFile: c.APIServer.Etcd.CAFile, CertFile: c.APIServer.Etcd.CertFile, KeyFile: c.APIServer.Etcd.KeyFile},
		DataDir: c.DataDir, RunDir: c.RunDir, BindAddress: c.APIServer.BindAddress, Port: int(*c.APIServer.Port),
		Kubeconfig: c.APIServer.Kubeconfig, TokenAuthFile: c.APIServer.TokenAuthFile,
		TokenIssuers: c.APIServer.ServiceAccountIssuers, MaxTokenLife: c.APIServer.ServiceAccountMaxTokenExpiration.Duration,
		EncryptionConfigFile: c.APIServer.EncryptionConfigFile, AllowedOrigins: c.APIServer.AllowedOrigins, CertSANs: c.APIServer.CertSANs,
		Audit: apiserver.Audit{
			PolicyFile: c.APIServer.Audit.PolicyFile, LogPath: c.APIServer.Audit.LogPath, MaxSize: int(c.APIServer.Audit.LogMaxSize),
			MaxBackups: int(*c.APIServer.Audit.LogMaxBackups), MaxAge: int(c.APIServer.Audit.LogMaxAge),
		},
		EtcdTick: c.APIServer.EtcdTick.Duration, EtcdQuota: quota, NodeName: c.NodeName, NodeAddresses: agentNames(&c.Agent, a.certified), Timeline: a.timeline,
		Log: a.Log.With("role", "apiserver"),
	})
	return err
}

func (a *apiRole) close() error {
	if a.server == nil {
		return nil
	}
	return a.server.Close()
}

// ready is closed when the API is served; it is for when the role is open.
func (a *apiRole) ready() <-chan struct{} { return a.server.Ready() }

// controllersConfig reaches the API with the rights of the controllers.
func (a *apiRole) controllersConfig() *rest.Config { return a.server.ControllersConfig() }

// controllers is the role of the controllers that the configuration chooses, from when the API server is ready. What nobody waits for while the node starts begins
// when it has settled; nil: at once.
func (a *apiRole) controllers(settled <-chan struct{}, listens servicelb.Listens) role {
	return role{name: "controllers", run: func(ctx context.Context) error {
		cfg := controllers.Config{
			Kube: a.controllersConfig(), Domain: a.Config.Agent.ClusterDomain, Authority: a.server, Tokens: a.server, Choice: a.Config.Controllers.Enabled, Settled: settled, Listens: listens, OwnPorts: a.ownPortsOf,
			Balancers: config.LoadBalancerRanges(a.Config.Network), Log: a.Log.With("role", "controllers"),
		}
		if a.server.Shared() {
			cfg.Beside = a.server.KeepOwn
			cfg.Listens = nil // of the nodes of all, one at most is this machine
		}
		if config.LeaderElect(a.Config) {
			identity, err := identity(a.Config)
			if err != nil {
				return err
			}
			cfg.Election = &controllers.Election{Identity: identity, Lease: a.Config.Controllers.LeaseDuration.Duration}
		}
		c := controllers.New(cfg)
		if !await(ctx, a.ready()) {
			return nil
		}
		return c.Run(ctx)
	}}
}

// agentWorld is that of the agent of this API server's own node, whose runtime is rt, when they are ready; nil: ctx has ended before.
func (a *apiRole) agentWorld(ctx context.Context, rt *runtimeRole, services *proxyRole) (*agentWorld, error) {
	if !await(ctx, a.ready()) || !await(ctx, rt.ready()) {
		return nil, nil
	}
	w := &agentWorld{kube: a.nodeConfig(), certified: a.certified, changed: func(ips []string) error { return a.server.SetNodeAddresses(agentNames(&a.Config.Agent, ips)) }}
	w.cred.ServingCert, w.cred.ServingKey, w.cred.ClientCA = a.server.AgentServingFiles()
	w.logs = agent.Logs{} // who writes a log here rotates it too: runtime.logRotation
	// Pods reach the API as in any cluster, at the address of the service kubernetes, where packets for services are led.
	if at := a.server.Advertised(); services.proxy == nil || !at.IsValid() {
		w.reached = &at
	} else if !await(ctx, services.proxy.Ready()) {
		return nil, nil
	}
	var err error
	w.own, err = newControlPlane(a.Config.NodeName, a.controllersConfig())
	return w, err
}
