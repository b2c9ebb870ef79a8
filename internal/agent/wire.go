package agent

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/agent/act"
	"monopod.dev/monopod/internal/agent/cdiprobe"
	"monopod.dev/monopod/internal/agent/certificates"
	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/eviction"
	"monopod.dev/monopod/internal/agent/handlers"
	"monopod.dev/monopod/internal/agent/imagekeep"
	"monopod.dev/monopod/internal/agent/loglinks"
	"monopod.dev/monopod/internal/agent/logrotate"
	"monopod.dev/monopod/internal/agent/metrics"
	"monopod.dev/monopod/internal/agent/nodestatus"
	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/agent/podstats"
	"monopod.dev/monopod/internal/agent/probes"
	"monopod.dev/monopod/internal/agent/pullauth"
	"monopod.dev/monopod/internal/agent/server"
	"monopod.dev/monopod/internal/agent/services"
	"monopod.dev/monopod/internal/agent/shutdown"
	"monopod.dev/monopod/internal/agent/source"
	"monopod.dev/monopod/internal/agent/status"
	"monopod.dev/monopod/internal/agent/tokens"
	"monopod.dev/monopod/internal/agent/trust"
	"monopod.dev/monopod/internal/agent/volumes"
	"monopod.dev/monopod/internal/agent/volumes/kinds"
	"monopod.dev/monopod/internal/agent/worker"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/cgroup/place"
)

// The agent is put together from its leaves on: what is made here is whole when it is made, and knows what was made before it. Nothing runs before all is there.

// leaves are the parts that need no other part of the agent.
type leaves struct {
	operations *metrics.Operations
	client     *cri.Client
	events     record.EventRecorder
	sink       record.EventBroadcaster // of events
	ref        *v1.ObjectReference     // the node, as events name it
	providers  *pullauth.Providers
	host       *cgroup.Host
	source     *source.API
	statuses   tracedStatuses
	handlers   *handlers.Handlers
	objects    *objects.Store
	tokens     *tokens.Store
	services   *services.Services
	links      *loglinks.Links
	down       *shutdown.Manager
}

// newLeaves makes them; close ends what they have begun, after ctx has ended.
func (a *Agent) newLeaves(ctx context.Context) (*leaves, error) {
	host, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	operations := metrics.NewOperations()
	client, err := cri.Dial(cri.Config{Socket: a.cfg.CRISocket, Observe: operations.Count, Log: a.log})
	if err != nil {
		return nil, err
	}
	providers, err := pullauth.LoadProviders(ctx, a.cfg.Images.CredentialProviders)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	sink := record.NewBroadcaster()
	sink.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: a.kube.CoreV1().Events("")})
	return &leaves{
		operations: operations, client: client, sink: sink, host: host, providers: providers, ref: a.nodeRef(), down: a.shutdown(),
		events:   sink.NewRecorder(eventScheme(), v1.EventSource{Component: "kubelet", Host: a.cfg.NodeName}),
		source:   source.FromAPI(a.kube, a.cfg.NodeName),
		statuses: tracedStatuses{status.New(tracedClient{a.kube, a.cfg.Timeline}, a.log), a.cfg.Timeline},
		handlers: handlers.New(handlers.CRI{Runtime: client}),
		objects:  objects.New(ctx, a.kube), tokens: tokens.New(a.kube, a.log),
		services: services.New(ctx, services.Config{Kube: a.kube, API: a.cfg.API}),
		links:    loglinks.New(loglinks.Config{Dir: a.cfg.ContainerLogsDir, LogsDir: a.cfg.PodLogsDir}),
	}, nil
}

func (l *leaves) close() {
	l.objects.Wait()
	l.services.Wait()
	l.providers.Wait()
	l.sink.Shutdown()
	l.client.Close()
}

// cgroupDriver is the runtime's.
func (l *leaves) cgroupDriver() place.Driver { return l.client.Identity().CgroupDriver }

// ofNode are the parts that are about the node as a whole.
type ofNode struct {
	reporter *nodestatus.Reporter
	shares   *nodeResources
	images   *imagekeep.Keeper
	stats    *podstats.Collector
	files    *volumes.Manager
	// certificates are those of pods.
	certificates *certificates.Store
}

func (a *Agent) newOfNode(ctx context.Context, l *leaves, port int) (*ofNode, error) {
	reporter, err := a.newReporter(l, port)
	if err != nil {
		return nil, err
	}
	podsDir := filepath.Join(a.cfg.DataDir, "pods")
	tell := func(pod *v1.Pod, kind, reason, message string) {
		(&act.Tell{Events: l.events}).Event(pod, "", kind, reason, message)
	}
	ofPods := certificates.New(certificates.Config{Client: a.kube, Objects: l.objects, NodeUID: func() types.UID { uid, _ := reporter.Object(); return uid }, Tell: tell, Log: a.log})
	return &ofNode{
		reporter: reporter, certificates: ofPods,
		shares: a.newNodeResources(ctx, resourceWorld{
			host: l.host, node: reporter, pods: l.source.Pods, synced: l.source.Synced, cgroupDriver: l.cgroupDriver,
		}),
		images: imagekeep.New(imagekeep.Config{
			Runtime: l.client, Policy: a.cfg.Images.GC, Period: a.cfg.Images.GCPeriod, File: filepath.Join(a.cfg.DataDir, "state", "images.json"),
			Node: l.ref, Events: l.events, Log: a.log,
		}),
		stats: podstats.New(ctx, podstats.Config{
			NodeName: a.cfg.NodeName, Runtime: l.client, Images: l.client.Images, PodsDir: podsDir, LogsDir: a.cfg.PodLogsDir, DiskDir: a.cfg.DataDir,
			PodsCgroup: func() (string, error) {
				return place.Path(place.Pods{Root: a.cfg.CgroupRoot, Driver: l.cgroupDriver()}.All())
			}, Log: a.log,
		}),
		files: volumes.New(volumes.Config{
			Dir: podsDir, Kinds: kinds.Config{
				Objects: l.objects, Tokens: l.tokens, Trust: trust.New(l.objects), Certificates: ofPods,
				HostIPs: a.cfg.NodeIPs, Allocatable: reporter.Allocatable, Node: reporter.Node, Pods: l.source.Pods, Tell: tell,
			},
			HeldIDs: l.client.HeldIDs, Log: a.log,
		}),
	}, nil
}

// newReporter makes who tells of the node.
func (a *Agent) newReporter(l *leaves, port int) (*nodestatus.Reporter, error) {
	return nodestatus.New(nodestatus.Config{
		Client: a.kube, NodeName: a.cfg.NodeName, ProviderID: a.cfg.ProviderID, Adopted: a.cfg.Adopted, Addresses: a.cfg.NodeIPs, Port: port, MaxPods: a.cfg.MaxPods,
		Reserved: a.cfg.Resources.Reserved, Version: kubeletVersion(a.cfg.Version), DataDir: a.cfg.DataDir, Fault: l.down.Faults(l.client.Condition),
		Features:       func() (*v1.NodeFeatures, []v1.NodeRuntimeHandler) { return nodeFeatures(l.client.Features()) },
		RuntimeVersion: func() string { id := l.client.Identity(); return id.Name + "://" + id.Version },
		Devices:        a.resources, Faults: a.deviceFaults, Events: l.events, Ref: l.ref, Log: a.log,
	})
}

// newActions makes what carries out the actions of pods, each part with what it needs.
func (a *Agent) newActions(l *leaves, n *ofNode, tell *act.Tell, devices grants) *act.Actions {
	node := &act.Node{
		Name: a.cfg.NodeName, IPs: a.cfg.NodeIPs, CgroupRoot: a.cfg.CgroupRoot, CgroupDriver: l.cgroupDriver, LogsDir: a.cfg.PodLogsDir,
		Limits: n.shares.limits, Allocatable: n.reporter.Allocatable,
		ResolvConf: a.cfg.ResolvConf, ClusterDNS: a.cfg.ClusterDNS, ClusterDomain: a.cfg.ClusterDomain, Notice: noticeOnce(l.events, l.ref),
	}
	runtimeHandlers := &act.RuntimeHandlers{Kube: a.kube, Runtime: l.client, IDs: n.files.IDs}
	places := &act.Places{Node: node, Files: n.files, Cgroups: n.shares.cgroups, Links: l.links, Tell: tell}
	return act.New(tell, act.Parts{
		Grants:    act.Grants{Devices: devices},
		Volumes:   act.Volumes{Files: n.files, Tell: tell},
		Sandboxes: act.Sandboxes{Node: node, Places: places, Handlers: runtimeHandlers, Runtime: l.client, Listener: a.cfg.Listener, Tell: tell},
		Starts: act.Starts{
			Configs: &act.Configs{
				Node: node, Handlers: runtimeHandlers, Devices: devices, Variables: act.Variables{Services: l.services, Objects: l.objects}, Files: n.files, Tell: tell,
			},
			Images:  &act.Images{Runtime: l.client.Images, Keeper: n.images, Pulls: act.Credentials{Objects: l.objects, Providers: l.providers}, Tell: tell},
			Creates: &act.Creates{Runtime: l.client, CDI: cdiprobe.New(cdiprobe.Config{Runtime: l.client, Log: a.log})},
			Files:   n.files, Links: l.links, Tell: tell, Log: a.log,
		},
		Hooks: act.Hooks{Node: node, Handler: l.handlers, Tell: tell},
		Stops: act.Stops{Runtime: l.client, Links: l.links, Tell: tell},
		Releases: act.Releases{Places: places, Devices: devices.Release, Held: []func(types.UID){
			func(uid types.UID) { l.objects.Release(string(uid)) }, l.tokens.Forget, n.certificates.Forget, n.shares.ledger.Release,
		}},
		Deletions: act.Deletions{Kube: a.kube, Flush: l.statuses.Flush},
	})
}

// noticeOnce tells of each thing once.
func noticeOnce(events record.EventRecorder, ref *v1.ObjectReference) func(reason, message string) {
	var said sync.Map
	return func(reason, message string) {
		if _, known := said.LoadOrStore(reason+message, true); !known {
			events.Event(ref, v1.EventTypeWarning, reason, message)
		}
	}
}

// ofPods are the parts that run pods.
type ofPods struct {
	roster *roster
	probes *probes.Manager
	disk   *eviction.Watcher
}

func (a *Agent) newOfPods(l *leaves, n *ofNode) *ofPods {
	tell := &act.Tell{Events: l.events, Timeline: a.cfg.Timeline}
	devices := grants{a.cfg.Devices, n.reporter.Counted}
	p := &ofPods{
		probes: probes.New(probes.Config{Handlers: l.handlers, Log: a.log, Events: func(pod *v1.Pod, c *v1.Container, kind, reason, message string) {
			tell.Event(pod, c.Name, kind, reason, message)
		}}),
		disk: eviction.New(eviction.Config{Measure: diskOf(n.stats), Log: a.log}),
	}
	left := &remains{runtime: l.client, devices: a.cfg.Devices, files: n.files, cgroups: n.shares.cgroups, links: l.links, logsDir: a.cfg.PodLogsDir, log: a.log}
	heard := newWatchers()
	p.roster = newRoster(rosterConfig{
		Source: l.source, Runtime: l.client, Sort: left.sort, Watchers: heard, Rested: l.down.Rested, Timeline: a.cfg.Timeline, Log: a.log,
		Workers: worker.Config{
			Runtime: l.client, Actions: a.newActions(l, n, tell, devices), Devices: devices, Ledger: n.shares.ledger, Files: n.files, Objects: l.objects,
			Renewed: []worker.Renewed{l.tokens, n.certificates}, Status: l.statuses, Probes: p.probes, Shutdown: l.down, Judges: []worker.Judge{p.disk}, Used: n.images.Used, Acted: heard.tell, HostIPs: a.cfg.NodeIPs, Log: a.log,
		},
	})
	return p
}

// wired is an agent that is put together: its server, and what runs beside it until ctx ends, at once or when the runtime has said who it is.
type wired struct {
	server              *server.Server
	always, withRuntime []func(ctx context.Context)
}

// wire puts the agent together on its leaves.
func (a *Agent) wire(ctx context.Context, l *leaves, listener net.Listener) (*wired, error) {
	port := listener.Addr().(*net.TCPAddr).Port
	n, err := a.newOfNode(ctx, l, port)
	if err != nil {
		return nil, err
	}
	p := a.newOfPods(l, n)
	resources, err := a.podResources(p.roster)
	if err != nil {
		return nil, err
	}
	srv, err := server.New(server.Config{
		NodeName: a.cfg.NodeName, Listener: listener, Cert: a.cfg.ServingCert, Key: a.cfg.ServingKey, ClientCA: a.cfg.ClientCA,
		Kube: a.kube, Runtime: l.client, Pods: p.roster, Stats: n.stats, Metrics: a.metrics(ctx, l, n.stats), Probes: p.probes,
		Config: func() any { return a.configz(l.client, port) }, Log: a.log,
	})
	if err != nil {
		return nil, err
	}
	return &wired{
		server: srv,
		always: []func(context.Context){
			l.statuses.Run, p.probes.Run, n.reporter.Run, n.stats.Run, p.disk.Run,
			func(ctx context.Context) { nodestatus.KeepLease(ctx, a.kube, a.cfg.NodeName, n.reporter) },
			func(ctx context.Context) { a.watchDevices(ctx, p.roster, n.reporter) },
			func(ctx context.Context) {
				l.client.Watch(ctx, cri.Observers{Pod: p.roster.poke, All: p.roster.pokeAll, Lost: n.reporter.Changed})
			},
			func(ctx context.Context) { a.announce(ctx, n.reporter) },
			func(ctx context.Context) {
				l.down.Run(ctx, &ending{roster: p.roster, reporter: n.reporter, events: l.events, ref: l.ref})
			},
			func(ctx context.Context) { servePodResources(ctx, p.roster, resources) },
		},
		withRuntime: a.withRuntime(l, n, p.roster),
	}, nil
}

// withRuntime is what runs as soon as the runtime has said who it is.
func (a *Agent) withRuntime(l *leaves, n *ofNode, r *roster) []func(ctx context.Context) {
	all := []func(context.Context){
		r.run,
		func(ctx context.Context) { _ = n.files.Run(ctx) }, // it ends with its context
	}
	if a.cfg.Images.GCPeriod > 0 {
		all = append(all, n.images.Run)
	}
	if a.cfg.Resources.Enforce {
		all = append(all, func(ctx context.Context) { n.shares.enforce(ctx, l.events, l.ref) })
	}
	if a.cfg.Logs.MaxSize > 0 {
		logs := logrotate.New(logrotate.Config{Runtime: l.client, Dir: a.cfg.PodLogsDir, MaxSize: a.cfg.Logs.MaxSize, MaxFiles: a.cfg.Logs.MaxFiles, Log: a.log})
		all = append(all, logs.Run)
	}
	return all
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
