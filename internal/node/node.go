// Package node is the composition root: the only package that knows every role. It makes each part from the
// configuration, joins them at their public seams (sockets, HTTPS, the executor's protocol) and runs them until the
// context ends.
//
// Stopping leaves pods running: the executor holds them, and the next start finds them. With Options.Ephemeral a stop
// removes the pods and all that the node has made on the host.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/agent"
	"monopod.dev/monopod/internal/agent/imagegc"
	"monopod.dev/monopod/internal/agent/pullauth"
	"monopod.dev/monopod/internal/agent/shutdown"
	"monopod.dev/monopod/internal/apiserver"
	"monopod.dev/monopod/internal/apiserver/etcd"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/controllers"
	"monopod.dev/monopod/internal/controllers/servicelb"
	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/podstarts"
	"monopod.dev/monopod/internal/kit/rollback"
	"monopod.dev/monopod/internal/proxy"
	"monopod.dev/monopod/internal/state"
)

// Options says what to run.
type Options struct {
	Config *v1alpha1.NodeConfiguration
	// Ephemeral: the directories must be new or empty, and a stop leaves nothing behind: no pod, no mount, no
	// namespace, no cgroup, no address, no rule, no file.
	Ephemeral bool
	// Version is Monopod's own version.
	Version string
	Log     *slog.Logger
	// OnReady is called once, when the node is ready for work.
	OnReady func()

	// garbageRoom is how much garbage the process may make between two collections (proc.Tidy).
	garbageRoom uint64
	// timeline remembers how pods' starts go; each role of the process notes its part.
	timeline *podstarts.Recorder
	// withAPI: the API server of the node is one of this process.
	withAPI bool
	// dns are the addresses of the cluster's DNS that this process serves; dnsProblem says why it serves none though it should.
	dns        []netip.Addr
	dnsProblem error
	// certified are the node's addresses that the first certificates are for; nil: this process makes none.
	certified []string
	// resetting: the node is opened to be removed.
	resetting bool
}

// apiGarbageRoom is that of a process with an API server, where each request leaves 50 to 100 kB behind. Under load it takes up to so much more
// memory, and gives it back when that is over.
const apiGarbageRoom = 48 << 20

// cleanupTime bounds what is done after the context has ended.
const cleanupTime = 60 * time.Second

// Up runs the whole node: API server, controllers, DNS, devices, runtime and agent.
func Up(ctx context.Context, o Options) (err error) {
	o.garbageRoom, o.timeline, o.withAPI = apiGarbageRoom, podstarts.New(podstarts.Config{}), true
	manifestsDir, err := o.manifestsDir()
	if err != nil {
		return err
	}
	unlock, err := o.enter(allParts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.leave(unlock)) }()

	names := o.openDNS(ctx)
	var api *apiserver.Server
	var rt *runtimeRole
	var undo rollback.Stack // of a start that fails before anything runs
	defer func() { err = errors.Join(err, undo.Run(ctx)) }()
	undo.Add("the opening of the API server and the runtime", func(context.Context) error { return o.abandon(api, rt) })
	undo.Add("the opening of the DNS", func(context.Context) error { return names.abandon() })
	// The stores open side by side: etcd's first election is most of the way to a ready node.
	start, startCtx := errgroup.WithContext(ctx)
	start.Go(func() (err error) { api, err = o.newAPIServer(startCtx); return err })
	start.Go(func() (err error) { rt, err = o.newRuntime(startCtx, true, true); return err })
	start.Go(func() error { names.place(); return nil })
	err = start.Wait()
	names = o.usableDNS(ctx, names)
	if err != nil {
		return err
	}
	gateways := rt.network.Gateways(ctx)
	if err := api.Extend(ctx, gateways); err != nil {
		return err
	}
	made := o.deviceFolders()
	dev, closeDevices, err := o.newDevices()
	if err != nil {
		return err
	}
	defer closeDevices()

	// The roles stop in the order agent, DNS, runtime, API server: each may use those after it until its own end.
	stages := newStages(ctx)
	kube := api.NodeConfig(o.Config.NodeName)
	services, err := o.newProxy(ctx, api.ControllersConfig(), len(gateways) > 0)
	if err != nil {
		return err
	}
	undo.Release()
	down := o.newShutdown()
	stages.run("admin", o.serveAdmin(facts{
		api: api, runtime: rt, devices: dev, dns: names, kube: func() *rest.Config { return kube }, agent: true, timeline: o.timeline, drain: o.drainer(down),
	}))
	stages.run("apiserver", api.Run)
	stages.run("runtime", rt.run)
	o.runOnAPI(stages, api, rt, onAPI{manifestsDir, names, services})
	stages.run("devices", dev.Run)
	stages.run("agent", func(ctx context.Context) error {
		if !await(ctx, api.Ready()) || !await(ctx, rt.server.Ready()) {
			return nil
		}
		cert, key, clientCA := api.AgentServingFiles()
		// Pods reach the API as in any cluster, at the address of the service kubernetes, where packets for services are led.
		var reached *netip.AddrPort
		if at := api.Advertised(); services == nil || !at.IsValid() {
			reached = &at
		} else if !await(ctx, services.Ready()) {
			return nil
		}
		// Whoever writes a log here rotates it too: runtime.logRotation.
		changed := func(ips []string) error { return api.SetNodeAddresses(o.agentNames(ips)) }
		own, err := o.newControlPlane(api.ControllersConfig())
		if err != nil {
			return err
		}
		return o.runAgent(ctx, agentWorld{kube, reached, dev, down, Credentials{cert, key, clientCA}, agent.Logs{}, own}, changed)
	})
	err = stages.wait()
	if o.Ephemeral {
		err = errors.Join(err, o.removeAll(rt), removeUnused(made))
	}
	return errors.Join(err, rt.close())
}

// onAPI is what works by the API alone, beside the controllers: a directory of manifests ("": none), and roles, nil: there are none.
type onAPI struct {
	manifestsDir string
	names        *dnsRole
	services     *proxy.Proxy
}

// runOnAPI runs what begins when the API server is ready.
func (o *Options) runOnAPI(stages *stages, api *apiserver.Server, rt *runtimeRole, parts onAPI) {
	settled := o.noteReady()
	stages.run("controllers", o.controllers(api, settled, listener))
	if parts.manifestsDir != "" {
		stages.run("manifests", o.manifests(api, parts.manifestsDir, settled))
	}
	if parts.names != nil {
		stages.run("dns", parts.names.run(api.ControllersConfig(), api.Ready()))
	}
	if parts.services != nil {
		stages.run("proxy", func(ctx context.Context) error {
			if !await(ctx, api.Ready()) {
				return nil
			}
			return parts.services.Run(ctx)
		})
	}
	stages.run("network policies", rt.enforce(api.Ready(), api.ControllersConfig()))
}

// Runtime runs the CRI runtime alone, for anybody's kubelet. kube is the API server whose network policies are enforced on the built-in network; nil: none are.
func Runtime(ctx context.Context, o Options, kube *rest.Config) (err error) {
	unlock, err := o.enter(partRuntime)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.leave(unlock)) }()
	rt, err := o.newRuntime(ctx, false, kube != nil)
	if err != nil {
		return err
	}
	stages := newStages(ctx)
	stages.run("admin", o.serveAdmin(facts{runtime: rt}))
	stages.run("runtime", rt.run)
	if kube != nil {
		stages.run("network policies", rt.enforce(nil, kube))
	}
	stages.run("ready", func(ctx context.Context) error {
		if await(ctx, rt.server.Ready()) {
			o.ready(ctx)
		}
		<-ctx.Done()
		return nil
	})
	err = stages.wait()
	if o.Ephemeral {
		err = errors.Join(err, o.removeAll(rt))
	}
	return errors.Join(err, rt.close())
}

// APIServer runs the API server and the controllers alone, for anybody's client.
func APIServer(ctx context.Context, o Options) (err error) {
	o.garbageRoom, o.timeline = apiGarbageRoom, podstarts.New(podstarts.Config{})
	manifestsDir, err := o.manifestsDir()
	if err != nil {
		return err
	}
	unlock, err := o.enter(partAPIServer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.leave(unlock)) }()
	api, err := o.newAPIServer(ctx)
	if err != nil {
		return err
	}
	stages := newStages(ctx)
	stages.run("admin", o.serveAdmin(facts{api: api, kube: api.AdminConfig, timeline: o.timeline}))
	stages.run("apiserver", api.Run)
	stages.run("controllers", o.controllers(api, nil, nil))
	if manifestsDir != "" {
		stages.run("manifests", o.manifests(api, manifestsDir, nil))
	}
	stages.run("ready", func(ctx context.Context) error {
		if await(ctx, api.Ready()) {
			o.ready(ctx)
		}
		<-ctx.Done()
		return nil
	})
	return stages.wait()
}

// Credentials are what the agent needs to serve its own HTTPS API in somebody else's cluster.
type Credentials struct{ ServingCert, ServingKey, ClientCA string }

// Agent runs the agent and the devices alone, against an API server and a CRI runtime of anybody's.
func Agent(ctx context.Context, o Options, kube *rest.Config, cred Credentials) (err error) {
	o.timeline = podstarts.New(podstarts.Config{})
	unlock, err := o.enter(partAgent)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.leave(unlock)) }()
	logs, err := agentLogs(&o.Config.Agent)
	if err != nil {
		return err
	}
	dev, closeDevices, err := o.newDevices()
	if err != nil {
		return err
	}
	defer closeDevices()
	services, err := o.newProxy(ctx, kube, false)
	if err != nil {
		return err
	}
	stages := newStages(ctx)
	down := o.newShutdown()
	if services != nil {
		stages.run("proxy", services.Run)
	}
	stages.run("admin", o.serveAdmin(facts{devices: dev, kube: func() *rest.Config { return kube }, agent: true, timeline: o.timeline, drain: o.drainer(down)}))
	stages.run("devices", dev.Run)
	stages.run("agent", func(ctx context.Context) error {
		return o.runAgent(ctx, agentWorld{kube, nil, dev, down, cred, logs, nil}, nil)
	})
	err = stages.wait()
	if o.Ephemeral && services != nil {
		err = errors.Join(err, o.endServices())
	}
	return err
}

func (o *Options) newAPIServer(ctx context.Context) (*apiserver.Server, error) {
	c := o.Config
	o.certified = o.nodeIPs()
	quota, err := config.ParseSize(c.APIServer.EtcdQuota)
	if err != nil {
		return nil, fmt.Errorf("apiServer.etcdQuota: %w", err)
	}
	services, err := serviceRanges(c)
	if err != nil {
		return nil, err
	}
	var advertised netip.Addr
	if a := c.APIServer.AdvertiseAddress; a != "" {
		var err error
		if advertised, err = netip.ParseAddr(a); err != nil {
			return nil, err
		}
	}
	return apiserver.New(ctx, apiserver.Config{
		ServiceCIDRs: services, DNS: o.dns, AdvertiseAddress: advertised,
		Etcd:    etcd.RemoteConfig{Servers: c.APIServer.Etcd.Servers, CAFile: c.APIServer.Etcd.CAFile, CertFile: c.APIServer.Etcd.CertFile, KeyFile: c.APIServer.Etcd.KeyFile},
		DataDir: c.DataDir, RunDir: c.RunDir, BindAddress: c.APIServer.BindAddress, Port: int(*c.APIServer.Port),
		Kubeconfig: c.APIServer.Kubeconfig, TokenAuthFile: c.APIServer.TokenAuthFile,
		TokenIssuers: c.APIServer.ServiceAccountIssuers, MaxTokenLife: c.APIServer.ServiceAccountMaxTokenExpiration.Duration,
		EncryptionConfigFile: c.APIServer.EncryptionConfigFile, AllowedOrigins: c.APIServer.AllowedOrigins, CertSANs: c.APIServer.CertSANs,
		Audit: apiserver.Audit{
			PolicyFile: c.APIServer.Audit.PolicyFile, LogPath: c.APIServer.Audit.LogPath, MaxSize: int(c.APIServer.Audit.LogMaxSize),
			MaxBackups: int(*c.APIServer.Audit.LogMaxBackups), MaxAge: int(c.APIServer.Audit.LogMaxAge),
		},
		EtcdTick: c.APIServer.EtcdTick.Duration, EtcdQuota: quota, NodeName: c.NodeName, NodeAddresses: o.agentNames(o.certified), Timeline: o.timeline,
		Log: o.Log.With("role", "apiserver"),
	})
}

// controllers runs the controllers that the configuration chooses, from when the API server is ready. What nobody waits for
// while the node starts begins when it has settled; nil: at once.
func (o *Options) controllers(api *apiserver.Server, settled <-chan struct{}, listens servicelb.Listens) func(context.Context) error {
	cfg := controllers.Config{
		Kube: api.ControllersConfig(), Authority: api, Tokens: api, Choice: o.Config.Controllers.Enabled, Settled: settled, Listens: listens, OwnPorts: o.ownPortsOf,
		Balancers: config.LoadBalancerRanges(o.Config.Network), Log: o.Log.With("role", "controllers"),
	}
	if api.Shared() {
		cfg.Beside = api.KeepOwn
		cfg.Listens = nil // of the nodes of all, one at most is this machine
	}
	return func(ctx context.Context) error {
		if config.LeaderElect(o.Config) {
			identity, err := o.identity()
			if err != nil {
				return err
			}
			cfg.Election = &controllers.Election{Identity: identity, Lease: o.Config.Controllers.LeaseDuration.Duration}
		}
		c := controllers.New(cfg)
		if !await(ctx, api.Ready()) {
			return nil
		}
		return c.Run(ctx)
	}
}

func (o *Options) newDevices() (*devices.Manager, func(), error) {
	db, err := o.openState("agent.db")
	if err != nil {
		return nil, nil, err
	}
	boot, err := proc.BootID()
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	cfg, err := o.devices()
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	cfg.DB, cfg.Boot = db, boot
	dev, err := devices.New(cfg)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return dev, func() { db.Close() }, nil
}

// agentWorld is what an agent works with, at whatever addresses. reached is where its pods reach the API; nil: at the service kubernetes. own says of the node
// that the API server is its own; nil: it is somebody else's.
type agentWorld struct {
	kube    *rest.Config
	reached *netip.AddrPort
	dev     *devices.Manager
	down    *shutdown.Manager
	cred    Credentials
	logs    agent.Logs
	own     *controlPlane
}

// runAgent runs the agent, at the addresses that the node has. changed is told of others; nil: nobody is.
func (o *Options) runAgent(ctx context.Context, w agentWorld, changed func(ips []string) error) error {
	return o.followAddresses(ctx, changed, func(ctx context.Context, ips []string, first bool) error {
		a, err := o.newAgent(w, ips)
		if err != nil {
			return err
		}
		if first {
			go func() {
				if await(ctx, a.Ready()) {
					o.ready(ctx)
				}
			}()
		}
		return a.Run(ctx)
	})
}

func (o *Options) newAgent(w agentWorld, ips []string) (*agent.Agent, error) {
	c := o.Config
	var provider string
	var adopted func(context.Context, types.UID) error
	if w.own != nil {
		provider, adopted = w.own.providerID(), w.own.adopt
	}
	return agent.New(agent.Config{
		NodeName: c.NodeName, ProviderID: provider, Adopted: adopted, Kube: w.kube, CRISocket: c.Runtime.Socket, Devices: w.dev,
		PodResourcesSocket: c.Devices.PodResourcesSocket, CgroupRoot: c.CgroupRoot, PodLogsDir: c.Agent.PodLogsDir, DataDir: c.DataDir,
		ContainerLogsDir: c.Agent.ContainerLogsDir, ResolvConf: c.Agent.ResolvConf, ClusterDNS: o.clusterDNS(), ClusterDomain: c.Agent.ClusterDomain,
		Address: o.agentAddress(ips), NodeIPs: ips, Port: int(*c.Agent.Port), ServingCert: w.cred.ServingCert, ServingKey: w.cred.ServingKey, ClientCA: w.cred.ClientCA, API: w.reached,
		MaxPods: int(c.Agent.MaxPods), OwnPorts: o.ownPorts(), Listener: listener, Resources: agentResources(&c.Agent), Images: agentImages(&c.Agent), Logs: w.logs, Shutdown: w.down, Version: o.Version, Timeline: o.timeline, Log: o.Log.With("role", "agent"),
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

// agentLogs is how an agent on somebody else's runtime rotates logs.
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

func (o *Options) ready(ctx context.Context) {
	if o.OnReady != nil {
		o.OnReady()
	}
	if err := proc.Slim(); err != nil {
		o.Log.Debug("memory of the start is kept", "error", err)
	}
	room := o.garbageRoom
	if os.Getenv("GOGC") != "" { // who runs the node knows better
		room = 0
	}
	go proc.Tidy(ctx, room)
}

// openState opens one state file; a damaged one is set aside and said so.
func (o *Options) openState(name string) (*state.DB, error) {
	path := filepath.Join(o.Config.DataDir, "state", name)
	db, damaged, err := state.Open(state.Config{Path: path, SetAside: true})
	if err != nil {
		return nil, err
	}
	if damaged != "" {
		o.Log.Error("the state file was damaged; it was set aside and a new one begun", "file", path, "kept", damaged)
	}
	return db, nil
}

// await waits for ready to be closed; false means that ctx ended first.
func await(ctx context.Context, ready <-chan struct{}) bool {
	select {
	case <-ready:
		return true
	case <-ctx.Done():
		return false
	}
}

// enter hides this process's memory, makes the node's directories and takes the locks of the parts that it runs.
func (o *Options) enter(parts ...part) (unlock func(), err error) {
	if err := proc.Hide(); err != nil { // it is to hold credentials, and what pods have in their environments
		return nil, err
	}
	c := o.Config
	if o.Ephemeral {
		for _, dir := range []string{c.DataDir, c.RunDir} {
			if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
				return nil, fmt.Errorf("--ephemeral removes its directories at the end, but %s is not empty: name new ones with --data-dir and --run-dir", dir)
			}
		}
		if slices.Contains(parts, partAPIServer) {
			if err := o.newKubeconfig(); err != nil {
				return nil, err
			}
		}
	}
	// What is in the data directory is reached by nobody but root; what is in the run directory, runtime.New says.
	if err := errors.Join(private.Dir(c.DataDir), private.Passage(c.RunDir)); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	writes := slices.Clone(parts)
	if o.Ephemeral {
		// It removes the directories at the end, so nobody else may be in them.
		parts = allParts
	}
	if unlock, err = lock(c.RunDir, parts...); err != nil || o.resetting {
		return unlock, err
	}
	if err := o.noteFolders(writes); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}
