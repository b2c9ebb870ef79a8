package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/agent/act"
	"monopod.dev/monopod/internal/agent/cdiprobe"
	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/eviction"
	"monopod.dev/monopod/internal/agent/handlers"
	"monopod.dev/monopod/internal/agent/imagegc"
	"monopod.dev/monopod/internal/agent/imagekeep"
	"monopod.dev/monopod/internal/agent/loglinks"
	"monopod.dev/monopod/internal/agent/logrotate"
	"monopod.dev/monopod/internal/agent/nodestatus"
	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/agent/probes"
	"monopod.dev/monopod/internal/agent/pullauth"
	"monopod.dev/monopod/internal/agent/server"
	"monopod.dev/monopod/internal/agent/services"
	"monopod.dev/monopod/internal/agent/shutdown"
	"monopod.dev/monopod/internal/agent/source"
	"monopod.dev/monopod/internal/agent/status"
	"monopod.dev/monopod/internal/agent/tokens"
	"monopod.dev/monopod/internal/agent/volumes"
	"monopod.dev/monopod/internal/agent/volumes/kinds"
	"monopod.dev/monopod/internal/agent/worker"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/cgroup/place"
	"monopod.dev/monopod/internal/kit/podstarts"
	"monopod.dev/monopod/internal/pods"
)

// OwnPort is a port of the host at which the node itself serves.
type OwnPort = pods.OwnPort

// Config configures the agent.
type Config struct {
	// NodeName is the name of the Node object, and the host name of pods on the host's network.
	NodeName string
	// Kube is how the API server is reached, with a node's rights.
	Kube *rest.Config
	// CRISocket is the path of the runtime's unix socket.
	CRISocket string
	// Devices grants devices; nil: a pod that asks for an extended resource waits.
	Devices DeviceManager
	// ProviderID is the Node's spec.providerID where it has none; empty: nobody provides the machine.
	ProviderID string
	// Adopted is called with the UID of each Node object that the agent finds or makes, before it says that the node is ready; when it fails, again. Nil: nobody is.
	Adopted func(ctx context.Context, uid types.UID) error
	// PodResourcesSocket is where the kubelet's PodResources API is served, such as podresources.DefaultSocket: an absolute path of at most
	// 107 bytes. Empty: it is not served.
	PodResourcesSocket string
	// CgroupRoot is the cgroup below which pods' cgroups are, in cgroupfs syntax.
	CgroupRoot string
	// PodLogsDir is the directory of all pods' logs, DataDir the directory in which the agent has its files.
	PodLogsDir, DataDir string
	// ContainerLogsDir is where log shippers find links to containers' logs; empty: there are none.
	ContainerLogsDir string
	// ResolvConf is the file of the host's name servers that pods get; empty: the host's own, without servers that pods do not reach.
	ResolvConf string
	// ClusterDNS are the addresses of the cluster's DNS; none: pods ask the host's name servers. ClusterDomain is the domain that it serves.
	ClusterDNS    []string
	ClusterDomain string
	// Address and Port are where the agent's own API is served.
	Address string
	Port    int
	// NodeIPs are the node's addresses, at most one of each family: what the Node object and pods' statuses say.
	NodeIPs []string
	// ServingCert, ServingKey and ClientCA are PEM files: the API's own certificate and key, and the authority of
	// its clients' certificates.
	ServingCert, ServingKey, ClientCA string
	// API is where pods reach the API, which their containers are told (KUBERNETES_SERVICE_HOST, ...); the zero value: they do not. Nil: at the address of
	// the Service kubernetes.
	API *netip.AddrPort
	// MaxPods is the node's capacity of pods.
	MaxPods int
	// OwnPorts are those at which the node itself serves, which no pod gets.
	OwnPorts []OwnPort
	// Listener says in words which process of the host listens at a port of it; empty: none does.
	Listener  func(protocol v1.Protocol, port int32) string
	Resources Resources
	Images    Images
	Logs      Logs
	// Timeline remembers how pods' starts go; nil: nobody does.
	Timeline *podstarts.Recorder
	// Shutdown ends the pods with the machine, or when it is asked to; nil: nothing does.
	Shutdown *shutdown.Manager
	// Version is monopod's version.
	Version string
	Log     *slog.Logger
}

// Images says how the node's images are pulled and removed.
type Images struct {
	// GC is when images are removed, GCPeriod how often it is looked whether they have to be; 0: never.
	GC       imagegc.Policy
	GCPeriod time.Duration
	// CredentialProviders are the plugins that give credentials for pulls.
	CredentialProviders pullauth.ProviderConfig
}

// Logs says how the logs of containers are rotated.
type Logs struct {
	// MaxSize is the size in bytes from which on a log is rotated; 0: never, because the runtime does it itself.
	MaxSize int64
	// MaxFiles is how many files are kept of a log, the present one included; at least 2.
	MaxFiles int
}

// requestRate is that there is no limit of requests to the API server in a second: what an agent asks is bounded by what it does at a time, and
// shared out by the API server's own fairness. A limit has pods that start wait for those that went just before.
const requestRate = -1

// Agent is the role agent. Make it with New.
type Agent struct {
	cfg   Config
	log   *slog.Logger
	kube  kubernetes.Interface
	ready chan struct{}
}

// New checks the configuration and makes the clients; nothing is sent or changed before Run.
func New(cfg Config) (*Agent, error) {
	switch {
	case cfg.NodeName == "":
		return nil, errors.New("the agent's node has no name")
	case cfg.Kube == nil:
		return nil, errors.New("the agent has no way to the API server")
	case cfg.CRISocket == "":
		return nil, errors.New("the agent has no CRI socket")
	case cfg.Log == nil:
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	kubeCfg := rest.CopyConfig(cfg.Kube)
	kubeCfg.QPS = requestRate
	kubeCfg.ContentType = runtime.ContentTypeProtobuf
	kubeCfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	kubeCfg.UserAgent = "monopod-agent/" + cfg.Version
	kube, err := kubernetes.NewForConfig(kubeCfg)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return &Agent{cfg: cfg, log: cfg.Log, kube: kube, ready: make(chan struct{})}, nil
}

// Ready is closed when the API server was told that the node is ready.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Run runs the agent until ctx ends, and returns when everything of it has ended. Pods are left running.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listener, err := net.Listen("tcp", net.JoinHostPort(a.cfg.Address, fmt.Sprint(a.cfg.Port)))
	if err != nil {
		return fmt.Errorf("the agent's API: %w; choose another address or port", err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	down := a.shutdown()

	told := a.numbers()
	client, err := cri.Dial(cri.Config{Socket: a.cfg.CRISocket, Observe: told.metrics.RuntimeOperation, Log: a.log})
	if err != nil {
		return err
	}
	defer client.Close()
	events := record.NewBroadcaster()
	events.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: a.kube.CoreV1().Events("")})
	defer events.Shutdown()
	recorder := events.NewRecorder(eventScheme(), v1.EventSource{Component: "kubelet", Host: a.cfg.NodeName})
	ref := a.nodeRef()
	reporter, err := a.newReporter(port, client, down, recorder, ref)
	if err != nil {
		return err
	}
	images := imagekeep.New(imagekeep.Config{
		Runtime: client, Policy: a.cfg.Images.GC, Period: a.cfg.Images.GCPeriod, File: filepath.Join(a.cfg.DataDir, "state", "images.json"),
		Node: ref, Events: recorder, Log: a.log,
	})
	providers, err := pullauth.LoadProviders(ctx, a.cfg.Images.CredentialProviders)
	if err != nil {
		return err
	}
	defer providers.Wait()
	defer cancel()
	statuses := status.New(tracedClient{a.kube, a.cfg.Timeline}, a.log)
	handle := handlers.New(handlers.CRI{Runtime: client})
	host, err := cgroup.Detect()
	if err != nil {
		return err
	}
	from := source.FromAPI(a.kube, a.cfg.NodeName)
	shares := a.newNodeResources(ctx, resourceWorld{
		host: host, node: reporter, pods: from.Pods, synced: from.Synced, cgroupDriver: func() place.Driver { return client.Identity().CgroupDriver },
	})
	p := a.newRoster(ctx, from, reporter, shares, act.Config{Runtime: client, Events: recorder, Images: images, Providers: providers, Status: tracedStatuses{statuses, a.cfg.Timeline}, Hooks: handle})
	p.cfg.Probes = probes.New(probes.Config{Handlers: handle, Log: a.log, Events: func(pod *v1.Pod, c *v1.Container, kind, reason, message string) {
		act.For(p.cfg.Config, string(pod.UID)).Event(pod, c.Name, kind, reason, message)
	}})
	disk := eviction.New(eviction.Config{Measure: told.disk, Log: a.log})
	p.cfg.Shutdown, p.cfg.Disk = down, disk
	resources, err := a.podResources(p)
	if err != nil {
		return err
	}
	told.connect(ctx, client, p)
	srv, err := server.New(server.Config{
		NodeName: a.cfg.NodeName, Listener: listener, Cert: a.cfg.ServingCert, Key: a.cfg.ServingKey, ClientCA: a.cfg.ClientCA,
		Kube: a.kube, Runtime: client, Pods: p, Stats: told.stats, Metrics: told.metrics, Probes: p.cfg.Probes, Config: func() any { return a.configz(client, port) }, Log: a.log,
	})
	if err != nil {
		return err
	}

	var wg sync.WaitGroup
	r := running{a, client, p, statuses, reporter, images, shares, told, disk, recorder, ref}
	r.begin(ctx, &wg)
	wg.Go(func() { down.Run(ctx, &ending{p, reporter, recorder, ref}) })
	wg.Go(func() { servePodResources(ctx, p, resources) })
	err = srv.Run(ctx)
	cancel()
	wg.Wait()
	p.cfg.Objects.Wait()
	p.cfg.Services.Wait()
	return err
}

// running are the parts of an agent that runs.
type running struct {
	agent    *Agent
	client   *cri.Client
	roster   *roster
	statuses *status.Writer
	reporter *nodestatus.Reporter
	images   *imagekeep.Keeper
	shares   *nodeResources
	told     *numbers
	disk     *eviction.Watcher
	recorder record.EventRecorder
	ref      *v1.ObjectReference
}

// begin has each part do its work until ctx ends.
func (r *running) begin(ctx context.Context, wg *sync.WaitGroup) {
	wg.Go(func() { r.statuses.Run(ctx) })
	wg.Go(func() { r.roster.cfg.Probes.Run(ctx) })
	wg.Go(func() { r.reporter.Run(ctx) })
	wg.Go(func() { nodestatus.KeepLease(ctx, r.agent.kube, r.agent.cfg.NodeName, r.reporter) })
	wg.Go(func() { r.agent.watchDevices(ctx, r.roster, r.reporter) })
	wg.Go(func() { r.told.stats.Run(ctx) })
	wg.Go(func() { r.disk.Run(ctx) })
	wg.Go(func() {
		r.client.Watch(ctx, cri.Observers{Pod: r.roster.poke, All: r.roster.pokeAll, Lost: r.reporter.Changed})
	})
	wg.Go(func() {
		// Pods' statuses name the runtime, so they wait for it; the node says meanwhile what it lacks.
		if r.agent.awaitRuntime(ctx, r.client) {
			if r.agent.cfg.Images.GCPeriod > 0 {
				wg.Go(func() { r.images.Run(ctx) })
			}
			if r.agent.cfg.Resources.Enforce {
				wg.Go(func() { r.shares.enforce(ctx, r.recorder, r.ref) })
			}
			if r.agent.cfg.Logs.MaxSize > 0 {
				logs := logrotate.New(logrotate.Config{
					Runtime: r.client, Dir: r.agent.cfg.PodLogsDir, MaxSize: r.agent.cfg.Logs.MaxSize, MaxFiles: r.agent.cfg.Logs.MaxFiles, Log: r.agent.log,
				})
				wg.Go(func() { logs.Run(ctx) })
			}
			r.roster.run(ctx)
		}
	})
	wg.Go(func() { r.agent.announce(ctx, r.reporter) })
}

// awaitRuntime waits until the runtime has said who it is; false: ctx ended first.
func (a *Agent) awaitRuntime(ctx context.Context, client *cri.Client) bool {
	again := retry()
	for told := false; ctx.Err() == nil; told = true {
		// The call itself waits for the socket to be served.
		_, err := client.Identify(ctx)
		if err == nil {
			return true
		}
		if !told && ctx.Err() == nil {
			a.log.Warn("the container runtime does not answer; the agent waits for it", "socket", a.cfg.CRISocket, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(again.Step()):
		}
	}
	return false
}

func (a *Agent) announce(ctx context.Context, r *nodestatus.Reporter) {
	select {
	case <-r.Ready():
		close(a.ready)
	case <-ctx.Done():
	}
}

// newReporter makes who tells of the node.
func (a *Agent) newReporter(port int, client *cri.Client, down *shutdown.Manager, events record.EventRecorder, ref *v1.ObjectReference) (*nodestatus.Reporter, error) {
	return nodestatus.New(nodestatus.Config{
		Client: a.kube, NodeName: a.cfg.NodeName, ProviderID: a.cfg.ProviderID, Adopted: a.cfg.Adopted, Addresses: a.cfg.NodeIPs, Port: port, MaxPods: a.cfg.MaxPods,
		Reserved: a.cfg.Resources.Reserved, Version: kubeletVersion(a.cfg.Version), DataDir: a.cfg.DataDir, Fault: down.Faults(client.Condition),
		Features:       func() (*v1.NodeFeatures, []v1.NodeRuntimeHandler) { return nodeFeatures(client.Features()) },
		RuntimeVersion: func() string { id := client.Identity(); return id.Name + "://" + id.Version },
		Devices:        a.resources, Faults: a.deviceFaults, Events: events, Ref: ref, Log: a.log,
	})
}

// newRoster completes what the actions of pods need.
func (a *Agent) newRoster(ctx context.Context, from source.Source, node *nodestatus.Reporter, shares *nodeResources, cfg act.Config) *roster {
	cfg.HostIPs, cfg.Listener = a.cfg.NodeIPs, a.cfg.Listener
	cfg.Kube, cfg.Log, cfg.NodeName, cfg.Timeline = a.kube, a.log, a.cfg.NodeName, a.cfg.Timeline
	cfg.Devices, cfg.CDI = grants{a.cfg.Devices, node.Counted}, cdiprobe.New(cdiprobe.Config{Runtime: cfg.Runtime, Log: a.log})
	cfg.Ledger, cfg.Cgroups, cfg.Limits, cfg.Allocatable = shares.ledger, shares.cgroups, shares.limits, node.Allocatable
	cfg.Objects, cfg.Tokens = objects.New(ctx, a.kube), tokens.New(a.kube, a.log)
	cfg.Volumes = volumes.New(volumes.Config{
		Dir: filepath.Join(a.cfg.DataDir, "pods"), Kinds: kinds.Config{Objects: cfg.Objects, Tokens: cfg.Tokens, HostIPs: cfg.HostIPs, Allocatable: node.Allocatable},
		HeldIDs: cfg.Runtime.HeldIDs, Log: a.log,
	})
	cfg.Services = services.New(ctx, services.Config{Kube: a.kube, API: a.cfg.API})
	cfg.LogLinks = loglinks.New(loglinks.Config{Dir: a.cfg.ContainerLogsDir, LogsDir: a.cfg.PodLogsDir})
	cfg.ClusterDNS, cfg.ClusterDomain = a.cfg.ClusterDNS, a.cfg.ClusterDomain
	var said sync.Map
	ref := a.nodeRef()
	cfg.NodeNotice = func(reason, message string) {
		if _, known := said.LoadOrStore(reason+message, true); !known {
			cfg.Events.Event(ref, v1.EventTypeWarning, reason, message)
		}
	}
	cfg.CgroupRoot, cfg.LogsDir, cfg.ResolvConf = a.cfg.CgroupRoot, a.cfg.PodLogsDir, a.cfg.ResolvConf
	p := newRoster(from, worker.Config{Config: cfg}, a.cfg.Devices)
	p.cgroups = shares.cgroups
	return p
}

// nodeRef is the node as its agent's events name it: their UID of a node is its name, by which kubectl finds them.
func (a *Agent) nodeRef() *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: a.cfg.NodeName, UID: types.UID(a.cfg.NodeName)}
}

func eventScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	// A list of types that is compiled in cannot fail to register.
	if err := v1.AddToScheme(s); err != nil {
		panic(err) //nolint:forbidigo // see above
	}
	return s
}
