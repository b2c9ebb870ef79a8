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
	"monopod.dev/monopod/internal/agent/imagegc"
	"monopod.dev/monopod/internal/agent/imagekeep"
	"monopod.dev/monopod/internal/agent/nodestatus"
	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/agent/pullauth"
	"monopod.dev/monopod/internal/agent/server"
	"monopod.dev/monopod/internal/agent/shutdown"
	"monopod.dev/monopod/internal/agent/status"
	"monopod.dev/monopod/internal/agent/volumes"
	"monopod.dev/monopod/internal/agent/worker"
)

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
	// PodResourcesSocket is where the kubelet's PodResources API is served, such as podresources.DefaultSocket: an absolute path of at most
	// 107 bytes. Empty: it is not served.
	PodResourcesSocket string
	// CgroupRoot is the cgroup below which pods' cgroups are, in cgroupfs syntax.
	CgroupRoot string
	// PodLogsDir is the directory of all pods' logs, DataDir the directory in which the agent has its files.
	PodLogsDir, DataDir string
	// Address and Port are where the agent's own API is served, and what the Node object says.
	Address string
	Port    int
	// ServingCert, ServingKey and ClientCA are PEM files: the API's own certificate and key, and the authority of
	// its clients' certificates.
	ServingCert, ServingKey, ClientCA string
	// API is where pods reach the API, which their containers are told (KUBERNETES_SERVICE_HOST, ...); the zero value: they do not. Nil: at the address of
	// the Service kubernetes.
	API *netip.AddrPort
	// MaxPods is the node's capacity of pods.
	MaxPods int
	Images  Images
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

// Limits of requests to the API server, a second and at once: an agent's own, beside the API server's fairness.
const (
	requestRate  = 200
	requestBurst = 400
)

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
	kubeCfg.QPS, kubeCfg.Burst = requestRate, requestBurst
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

	client, err := cri.Dial(cri.Config{Socket: a.cfg.CRISocket, Log: a.log})
	if err != nil {
		return err
	}
	defer client.Close()
	events := record.NewBroadcaster()
	events.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: a.kube.CoreV1().Events("")})
	defer events.Shutdown()
	recorder := events.NewRecorder(eventScheme(), v1.EventSource{Component: "kubelet", Host: a.cfg.NodeName})
	// The UID of a node in its agent's events is its name, by which kubectl finds them.
	ref := &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: a.cfg.NodeName, UID: types.UID(a.cfg.NodeName)}
	reporter, err := nodestatus.New(nodestatus.Config{
		Client: a.kube, NodeName: a.cfg.NodeName, Address: a.cfg.Address, Port: port, MaxPods: a.cfg.MaxPods,
		Version: kubeletVersion(a.cfg.Version), DataDir: a.cfg.DataDir, Fault: down.Faults(client.Condition),
		RuntimeVersion: func() string { id := client.Identity(); return id.Name + "://" + id.Version },
		Devices:        a.resources, Events: recorder, Ref: ref, Log: a.log,
	})
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
	p := a.newRoster(ctx, client, reporter, recorder, act.Config{Images: images, Providers: providers})
	p.cfg.Shutdown = down
	resources, err := a.podResources(p)
	if err != nil {
		return err
	}
	srv, err := server.New(server.Config{
		Listener: listener, Cert: a.cfg.ServingCert, Key: a.cfg.ServingKey, ClientCA: a.cfg.ClientCA,
		Kube: a.kube, Runtime: client, Pods: p, Log: a.log,
	})
	if err != nil {
		return err
	}

	var wg sync.WaitGroup
	wg.Go(func() { p.cfg.Status.Run(ctx) })
	wg.Go(func() { reporter.Run(ctx) })
	wg.Go(func() { down.Run(ctx, &ending{p, reporter, recorder, ref}) })
	wg.Go(func() { nodestatus.KeepLease(ctx, a.kube, a.cfg.NodeName, reporter) })
	wg.Go(func() { a.watchDevices(ctx, p, reporter) })
	wg.Go(func() { servePodResources(ctx, p, resources) })
	wg.Go(func() { client.Watch(ctx, cri.Observers{Pod: p.poke, All: p.pokeAll, Lost: reporter.Changed}) })
	wg.Go(func() {
		// Pods' statuses name the runtime, so they wait for it; the node says meanwhile what it lacks.
		if a.awaitRuntime(ctx, client) {
			if a.cfg.Images.GCPeriod > 0 {
				wg.Go(func() { images.Run(ctx) })
			}
			p.run(ctx)
		}
	})
	wg.Go(func() { a.announce(ctx, reporter) })
	err = srv.Run(ctx)
	cancel()
	wg.Wait()
	p.cfg.Objects.Wait()
	return err
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

func (a *Agent) newRoster(ctx context.Context, client *cri.Client, node *nodestatus.Reporter, events record.EventRecorder, cfg act.Config) *roster {
	store := objects.New(ctx, a.kube, a.log)
	var hostIPs []string
	if ip := net.ParseIP(a.cfg.Address); ip != nil && !ip.IsUnspecified() {
		hostIPs = append(hostIPs, ip.String())
	}
	return newRoster(a.cfg.NodeName, a.kube, worker.Config{Config: act.Config{
		Runtime: client, Kube: a.kube, Devices: grants{a.cfg.Devices}, CDI: cdiprobe.New(cdiprobe.Config{Runtime: client, Log: a.log}),
		Volumes: volumes.New(volumes.Config{
			Dir: filepath.Join(a.cfg.DataDir, "pods"), Objects: store, HostIPs: hostIPs, Allocatable: node.Allocatable,
		}),
		Objects: store, Status: status.New(a.kube, a.log),
		Events: events, Images: cfg.Images, Providers: cfg.Providers,
		NodeName: a.cfg.NodeName, HostIPs: hostIPs, NodeMemory: node.Memory(), Allocatable: node.Allocatable,
		API:        (&apiAddress{kube: a.kube, given: a.cfg.API}).find,
		CgroupRoot: a.cfg.CgroupRoot, LogsDir: a.cfg.PodLogsDir, ResolvConf: "/etc/resolv.conf", Log: a.log,
	}}, a.cfg.Devices)
}

func eventScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	// A list of types that is compiled in cannot fail to register.
	if err := v1.AddToScheme(s); err != nil {
		panic(err) //nolint:forbidigo // see above
	}
	return s
}
