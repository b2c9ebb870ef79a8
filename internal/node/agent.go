package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/agent"
	"monopod.dev/monopod/internal/agent/imagegc"
	"monopod.dev/monopod/internal/agent/pullauth"
	"monopod.dev/monopod/internal/agent/shutdown"
	"monopod.dev/monopod/internal/config"
)

// agentRole is the agent, at the addresses that the node has.
type agentRole struct {
	*process
	names   *dnsRole
	devices *devicesRole
	down    *shutdown.Manager
	// world finds out what the agent works with, when that is there; nil: ctx has ended before.
	world func(ctx context.Context) (*agentWorld, error)
}

// agentWorld is what an agent works with, at whatever addresses.
type agentWorld struct {
	kube *rest.Config
	// reached is where its pods reach the API; nil: at the service kubernetes.
	reached *netip.AddrPort
	cred    Credentials
	logs    agent.Logs
	// own says of the node that the API server is its own; nil: it is another one's.
	own *controlPlane
	// changed is told of other addresses of the node than the certified ones; nil: nobody is.
	changed   func(ips []string) error
	certified []string
}

func (a *agentRole) role() role { return role{name: "agent", run: a.run} }

func (a *agentRole) run(ctx context.Context) error {
	w, err := a.world(ctx)
	if w == nil || err != nil {
		return err
	}
	return followAddresses(ctx, &a.Config.Agent, w, a.Log.With("role", "agent"), func(ctx context.Context, ips []string, first bool) error {
		agent, err := a.new(w, ips)
		if err != nil {
			return err
		}
		if first {
			go func() {
				if await(ctx, agent.Ready()) {
					a.tellReady(ctx)
				}
			}()
		}
		return agent.Run(ctx)
	})
}

func (a *agentRole) new(w *agentWorld, ips []string) (*agent.Agent, error) {
	c := a.Config
	var provider string
	var adopted func(context.Context, types.UID) error
	if w.own != nil {
		provider, adopted = w.own.providerID(), w.own.adopt
	}
	return agent.New(agent.Config{
		NodeName: c.NodeName, ProviderID: provider, Adopted: adopted, Kube: w.kube, CRISocket: c.Runtime.Socket, Devices: a.devices.manager,
		PodResourcesSocket: c.Devices.PodResourcesSocket, CgroupRoot: c.CgroupRoot, PodLogsDir: c.Agent.PodLogsDir, DataDir: c.DataDir,
		ContainerLogsDir: c.Agent.ContainerLogsDir, ResolvConf: c.Agent.ResolvConf, ClusterDNS: a.names.servers(), ClusterDomain: c.Agent.ClusterDomain,
		Address: agentAddress(&c.Agent, ips), NodeIPs: ips, Port: int(*c.Agent.Port), ServingCert: w.cred.ServingCert, ServingKey: w.cred.ServingKey, ClientCA: w.cred.ClientCA, API: w.reached,
		MaxPods: int(c.Agent.MaxPods), OwnPorts: a.ownPorts(), Listener: listener, Resources: agentResources(&c.Agent), Images: agentImages(&c.Agent), Logs: w.logs, Shutdown: a.down, Version: a.Version, Timeline: a.timeline, Log: a.Log.With("role", "agent"),
	})
}

func agentResources(a *v1alpha1.Agent) agent.Resources {
	r := agent.Resources{
		Reserved: v1.ResourceList{}, Enforce: slices.Contains(a.EnforceNodeAllocatable, config.EnforcePods),
		LimitedSwap: a.MemorySwap.SwapBehavior == config.LimitedSwap, Tiered: a.MemoryReservationPolicy == config.TieredReservation,
		SingleProcessOOMKill: a.SingleProcessOOMKill != nil && *a.SingleProcessOOMKill,
	}
	for name, amount := range config.Reserved(a) {
		r.Reserved[v1.ResourceName(name)] = amount
	}
	if f := a.MemoryThrottlingFactor; f != nil {
		r.Throttling = *f
	}
	return r
}

// agentLogs is how an agent on another runtime than ours rotates logs.
func agentLogs(a *v1alpha1.Agent) (agent.Logs, error) {
	size, err := config.ParseSize(a.ContainerLogMaxSize)
	if err != nil {
		return agent.Logs{}, fmt.Errorf("agent.containerLogMaxSize: %w", err)
	}
	return agent.Logs{MaxSize: size, MaxFiles: int(a.ContainerLogMaxFiles)}, nil
}

func agentImages(a *v1alpha1.Agent) agent.Images {
	return agent.Images{
		GC: imagegc.Policy{
			High: int(*a.ImageGCHighThresholdPercent), Low: int(*a.ImageGCLowThresholdPercent),
			MinAge: a.ImageMinimumGCAge.Duration, MaxAge: a.ImageMaximumGCAge.Duration,
		},
		GCPeriod:            a.ImageGCPeriod.Duration,
		CredentialProviders: pullauth.ProviderConfig{File: a.ImageCredentialProviderConfig, BinDir: a.ImageCredentialProviderBinDir},
	}
}
