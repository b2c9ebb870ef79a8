package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/imagegc"
	"monopod.dev/monopod/internal/agent/nodestatus"
	"monopod.dev/monopod/internal/agent/pullauth"
	"monopod.dev/monopod/internal/agent/shutdown"
	"monopod.dev/monopod/internal/kit/podstarts"
	"monopod.dev/monopod/internal/kit/wait"
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
	l, err := a.newLeaves(ctx)
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		l.close()
	}()
	w, err := a.wire(ctx, l, listener)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for _, run := range w.always {
		wg.Go(func() { run(ctx) })
	}
	wg.Go(func() {
		// Pods' statuses name the runtime, so they wait for it; the node says meanwhile what it lacks.
		if !a.awaitRuntime(ctx, l.client) {
			return
		}
		for _, run := range w.withRuntime {
			wg.Go(func() { run(ctx) })
		}
	})
	err = w.server.Run(ctx)
	cancel()
	wg.Wait()
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
		if wait.For(ctx, again.Step()) != nil {
			break
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
