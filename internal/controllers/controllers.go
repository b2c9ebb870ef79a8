package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/controllers/accounttokens"
	"monopod.dev/monopod/internal/controllers/aggregate"
	"monopod.dev/monopod/internal/controllers/autoscaler"
	"monopod.dev/monopod/internal/controllers/binder"
	"monopod.dev/monopod/internal/controllers/certificates"
	"monopod.dev/monopod/internal/controllers/cronjob"
	"monopod.dev/monopod/internal/controllers/daemonset"
	"monopod.dev/monopod/internal/controllers/deployment"
	"monopod.dev/monopod/internal/controllers/disruption"
	"monopod.dev/monopod/internal/controllers/endpoints"
	"monopod.dev/monopod/internal/controllers/garbage"
	"monopod.dev/monopod/internal/controllers/ingresses"
	"monopod.dev/monopod/internal/controllers/job"
	"monopod.dev/monopod/internal/controllers/namespace"
	"monopod.dev/monopod/internal/controllers/nodelifecycle"
	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/podgc"
	"monopod.dev/monopod/internal/controllers/replicas"
	"monopod.dev/monopod/internal/controllers/rootca"
	"monopod.dev/monopod/internal/controllers/scales"
	"monopod.dev/monopod/internal/controllers/serviceaccount"
	"monopod.dev/monopod/internal/controllers/servicecidr"
	"monopod.dev/monopod/internal/controllers/servicelb"
	"monopod.dev/monopod/internal/controllers/statefulset"
	"monopod.dev/monopod/internal/controllers/tainteviction"
	"monopod.dev/monopod/internal/controllers/ttl"
	"monopod.dev/monopod/internal/kit/iprange"
	"monopod.dev/monopod/internal/pods"
)

// userAgent is the role's name at the API server.
const userAgent = "monopod-controllers"

// Config is what the role needs.
type Config struct {
	// Kube reaches the API server, with the rights of all controllers that are chosen.
	Kube *rest.Config
	// Choice says which controllers run: names, "*" for all, "-NAME" for all but that one.
	Choice []string
	// Authority signs certificates; nil: nobody here does.
	Authority certificates.Authority
	// Tokens makes the tokens of service accounts that secrets hold; nil: nobody here does.
	Tokens accounttokens.Issuer
	// Listens says which process of the nodes' machine listens at a port of it; nil: the nodes are other machines.
	Listens servicelb.Listens
	// OwnPorts are those at which a node serves itself, as far as they are known here; nil: none is.
	OwnPorts func(node string) []pods.OwnPort
	// Balancers are ranges of addresses that are load balancers'; none: these have those of the nodes.
	Balancers []iprange.Range
	// Settled is closed when the node has started. What nobody waits for meanwhile begins then; nil: at once.
	Settled <-chan struct{}
	// Election says how the controllers of several processes take turns; nil: these act at once.
	Election *Election
	// Beside is what else one process at a time does, as long as its controllers act and elected says so; nil: nothing.
	Beside func(ctx context.Context, elected func() bool) error
	// Log; nil: none.
	Log *slog.Logger
}

// Controllers are the controllers of a configuration.
type Controllers struct {
	config Config
	log    *slog.Logger
}

// New returns the controllers, which do nothing until they are run.
func New(config Config) *Controllers {
	log := config.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Controllers{config: config, log: log}
}

// Run runs the controllers until ctx ends, which is no error. It is called once, and when it returns nothing of the controllers is at work.
func (c *Controllers) Run(ctx context.Context) error {
	if c.config.Election != nil {
		return c.electedRun(ctx)
	}
	return c.act(ctx, nil)
}

// act runs the controllers until ctx ends. They begin with nothing, and keep nothing. fence holds back what they write; nil: nothing does.
func (c *Controllers) act(ctx context.Context, fence *fence) error {
	s, err := c.share(fence)
	if err != nil {
		return err
	}
	// Workers tell of their last object when ctx has ended already, so the broadcaster ends after them.
	s.events = record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	defer s.events.Shutdown()
	s.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: s.client.CoreV1().Events("")})

	running, runCtx := errgroup.WithContext(ctx)
	defer s.informers.Shutdown() // their context has ended then
	start := func(which ...controller) error {
		for _, one := range which {
			if !enabled(one.name, c.config.Choice) {
				continue
			}
			made, err := one.make(s, c.log.With("controller", one.name))
			if err != nil {
				return unlessOver(runCtx, fmt.Errorf("controller %s: %w", one.name, err))
			}
			running.Go(func() error { return unlessOver(runCtx, made.Run(runCtx)) })
		}
		s.informers.StartWithContext(runCtx)
		return nil
	}
	if c.config.Beside != nil {
		running.Go(func() error { return unlessOver(runCtx, c.config.Beside(runCtx, fence.open)) })
	}
	running.Go(func() error {
		// Pods wait for the binder from the first moment on.
		if err := start(early()...); err != nil {
			return err
		}
		if c.config.Settled != nil {
			select {
			case <-c.config.Settled:
			case <-runCtx.Done():
				return nil
			}
		}
		if err := start(slices.Concat(late(), ofWorkloads(), ofServices())...); err != nil {
			return err
		}
		<-runCtx.Done()
		return nil
	})
	return running.Wait()
}

// unlessOver is an error that came before the end. Who begins while all ends finds informers that have ended already, which is no fault of anybody.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// controller is one of the role.
type controller struct {
	name string
	make func(s *shared, log *slog.Logger) (runner, error)
}

// runner works until its context ends, which is no error.
type runner interface {
	Run(ctx context.Context) error
}

// idle is a controller that has nothing to work with.
type idle struct{}

func (idle) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func early() []controller {
	return []controller{{Binder, func(s *shared, log *slog.Logger) (runner, error) {
		return binder.New(binder.Config{
			Client: s.client, Pods: s.informers.Core().V1().Pods(), Nodes: s.informers.Core().V1().Nodes(), Namespaces: s.informers.Core().V1().Namespaces(),
			OwnPorts: s.ownPorts, Events: s.recorder(corev1.DefaultSchedulerName), Log: log,
		})
	}}, {ServiceAccount, func(s *shared, log *slog.Logger) (runner, error) {
		s.informers.Core().V1().Namespaces().Informer() // so that it is started with the others
		return serviceaccount.New(serviceaccount.Config{Client: s.client, Namespaces: s.informers.Core().V1().Namespaces(), Log: log}), nil
	}}, {RootCA, func(s *shared, log *slog.Logger) (runner, error) {
		s.informers.Core().V1().Namespaces().Informer()
		return rootca.New(rootca.Config{Client: s.client, Namespaces: s.informers.Core().V1().Namespaces(), CA: s.ca, Log: log}), nil
	}}}
}

func late() []controller {
	return []controller{{Namespace, func(s *shared, log *slog.Logger) (runner, error) {
		return namespace.New(namespace.Config{
			Client: s.client, Metadata: s.metadata, Discovery: s.discovery, Namespaces: s.informers.Core().V1().Namespaces(), Log: log,
		})
	}}, {GarbageCollector, func(s *shared, log *slog.Logger) (runner, error) {
		return garbage.New(garbage.Config{
			Metadata: s.metadata, Discovery: s.discovery, Events: s.recorder("garbage-collector-controller"), Log: log,
		}), nil
	}}, {Aggregation, func(s *shared, log *slog.Logger) (runner, error) {
		return aggregate.New(aggregate.Config{Client: s.client.RbacV1(), ClusterRoles: s.informers.Rbac().V1().ClusterRoles(), Log: log})
	}}, {Certificates, func(s *shared, log *slog.Logger) (runner, error) {
		if s.authority == nil {
			return idle{}, nil
		}
		return certificates.New(certificates.Config{
			Client: s.client, Requests: s.informers.Certificates().V1().CertificateSigningRequests(), Authority: s.authority, Log: log,
		})
	}}, {AccountTokens, func(s *shared, log *slog.Logger) (runner, error) {
		if s.tokens == nil {
			return idle{}, nil
		}
		return accounttokens.New(accounttokens.Config{
			Client: s.client, Issuer: s.tokens, Accounts: s.informers.Core().V1().ServiceAccounts(), CA: s.ca, Log: log,
		})
	}}, {NodeLifecycle, func(s *shared, log *slog.Logger) (runner, error) {
		return nodelifecycle.New(nodelifecycle.Config{
			Client: s.client, Nodes: s.informers.Core().V1().Nodes(), Pods: s.informers.Core().V1().Pods(), Events: s.recorder("node-controller"), Log: log,
		})
	}}, {TaintEviction, func(s *shared, log *slog.Logger) (runner, error) {
		return tainteviction.New(tainteviction.Config{
			Client: s.client, Nodes: s.informers.Core().V1().Nodes(), Pods: s.informers.Core().V1().Pods(), Events: s.recorder("taint-eviction-controller"), Log: log,
		})
	}}, {PodGC, func(s *shared, log *slog.Logger) (runner, error) {
		return podgc.New(podgc.Config{Client: s.client, Nodes: s.informers.Core().V1().Nodes(), Pods: s.informers.Core().V1().Pods(), Log: log})
	}}, {Endpoints, func(s *shared, log *slog.Logger) (runner, error) {
		return endpoints.New(endpoints.Config{Kube: s.client, Informers: s.informers, Events: s.recorder("endpoint-controller"), Log: log})
	}}}
}

// ofWorkloads are those of the objects that say how many pods there are; they are late, too.
func ofWorkloads() []controller {
	return []controller{{Deployment, func(s *shared, log *slog.Logger) (runner, error) {
		apps := s.informers.Apps().V1()
		return deployment.New(deployment.Config{
			Client: s.client, Deployments: apps.Deployments(), Sets: apps.ReplicaSets(), Pods: s.informers.Core().V1().Pods(), Events: s.recorder("deployment-controller"), Log: log,
		})
	}}, {ReplicaSet, func(s *shared, log *slog.Logger) (runner, error) {
		config := replicas.Config{
			Client: s.client, Pods: s.informers.Core().V1().Pods(), Events: s.recorder("replicaset-controller"), Pace: s.pace, Log: log,
		}
		return replicas.ForReplicaSets(config, s.informers.Apps().V1().ReplicaSets())
	}}, {Replication, func(s *shared, log *slog.Logger) (runner, error) {
		config := replicas.Config{
			Client: s.client, Pods: s.informers.Core().V1().Pods(), Events: s.recorder("replication-controller"), Pace: s.pace, Log: log,
		}
		return replicas.ForReplicationControllers(config, s.informers.Core().V1().ReplicationControllers())
	}}, {StatefulSet, func(s *shared, log *slog.Logger) (runner, error) {
		apps := s.informers.Apps().V1()
		return statefulset.New(statefulset.Config{
			Client: s.client, Sets: apps.StatefulSets(), Pods: s.informers.Core().V1().Pods(), Revisions: apps.ControllerRevisions(),
			Events: s.recorder("statefulset-controller"), Pace: s.pace, Log: log,
		})
	}}, {DaemonSet, func(s *shared, log *slog.Logger) (runner, error) {
		apps := s.informers.Apps().V1()
		return daemonset.New(daemonset.Config{
			Client: s.client, Sets: apps.DaemonSets(), Pods: s.informers.Core().V1().Pods(), Nodes: s.informers.Core().V1().Nodes(), Revisions: apps.ControllerRevisions(),
			Events: s.recorder("daemonset-controller"), Pace: s.pace, Log: log,
		})
	}}, {Job, func(s *shared, log *slog.Logger) (runner, error) {
		return job.New(job.Config{
			Client: s.client, Jobs: s.informers.Batch().V1().Jobs(), Pods: s.informers.Core().V1().Pods(), Events: s.recorder("job-controller"), Pace: s.pace, Log: log,
		})
	}}, {TTLAfterFinished, func(s *shared, log *slog.Logger) (runner, error) {
		return ttl.New(ttl.Config{Client: s.client, Jobs: s.informers.Batch().V1().Jobs(), Log: log})
	}}, {CronJob, func(s *shared, log *slog.Logger) (runner, error) {
		batch := s.informers.Batch().V1()
		return cronjob.New(cronjob.Config{Client: s.client, CronJobs: batch.CronJobs(), Jobs: batch.Jobs(), Events: s.recorder("cronjob-controller"), Log: log})
	}}, {Disruption, func(s *shared, log *slog.Logger) (runner, error) {
		apps, core := s.informers.Apps().V1(), s.informers.Core().V1()
		return disruption.New(disruption.Config{
			Client: s.client, Budgets: s.informers.Policy().V1().PodDisruptionBudgets(), Pods: core.Pods(), Deployments: apps.Deployments(), Sets: apps.ReplicaSets(),
			Stateful: apps.StatefulSets(), Controllers: core.ReplicationControllers(), Scales: s.scales, Events: s.recorder("controllermanager"), Log: log,
		})
	}}, {Autoscaler, func(s *shared, log *slog.Logger) (runner, error) {
		return autoscaler.New(autoscaler.Config{
			Client: s.client, Autoscalers: s.informers.Autoscaling().V2().HorizontalPodAutoscalers(), Pods: s.informers.Core().V1().Pods(),
			Scales: s.scales, Metrics: s.metrics, Events: s.recorder("horizontal-pod-autoscaler"), Log: log,
		})
	}}}
}

// ofServices are those of services; they are late, too.
func ofServices() []controller {
	return []controller{{ServiceLB, func(s *shared, log *slog.Logger) (runner, error) {
		core := s.informers.Core().V1()
		return servicelb.New(servicelb.Config{
			Client: s.client, Services: core.Services(), Nodes: core.Nodes(), Pods: core.Pods(), Listens: s.listens, Ranges: s.balancers,
			Events: s.recorder("service-controller"), Log: log,
		})
	}}, {ServiceCIDR, func(s *shared, log *slog.Logger) (runner, error) {
		networking := s.informers.Networking().V1()
		return servicecidr.New(servicecidr.Config{Client: s.client, Ranges: networking.ServiceCIDRs(), Addresses: networking.IPAddresses(), Log: log})
	}}, {IngressClass, func(s *shared, log *slog.Logger) (runner, error) {
		networking := s.informers.Networking().V1()
		return ingresses.New(ingresses.Config{Ingresses: networking.Ingresses(), Classes: networking.IngressClasses(), Events: s.recorder("ingress-class-controller"), Log: log})
	}}}
}

// shared is what the controllers have in common: connections, what is known of the API's objects, and the way of events.
type shared struct {
	client    kubernetes.Interface
	metadata  metadata.Interface
	discovery *discovery.DiscoveryClient
	informers informers.SharedInformerFactory
	scales    *scales.Scales
	metrics   *autoscaler.Client
	pace      *owned.Pace
	authority certificates.Authority
	tokens    accounttokens.Issuer
	events    record.EventBroadcaster
	listens   servicelb.Listens
	balancers []iprange.Range
	ownPorts  func(node string) []pods.OwnPort
	// ca is the authority of the API server's own certificate, as PEM.
	ca []byte
}

func (c *Controllers) share(fence *fence) (*shared, error) {
	config := rest.CopyConfig(c.config.Kube)
	if fence != nil {
		config.Wrap(fence.wrap)
	}
	// What they do is on the way of pods to their start, and of people who wait for a deletion: how many requests they have at a time is bounded, and how many
	// pods they make (s.pace), but not how many requests a second.
	config.QPS = -1
	config.Wrap(newGate) // before the fence, which is to be open when its turn has come
	config = rest.AddUserAgent(config, userAgent)
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("controllers: client of %s: %w", config.Host, err)
	}
	typed := rest.CopyConfig(config)
	typed.ContentType = runtime.ContentTypeProtobuf
	typed.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	s := &shared{pace: owned.NewPace(), authority: c.config.Authority, tokens: c.config.Tokens, listens: c.config.Listens, balancers: c.config.Balancers, ownPorts: c.config.OwnPorts}
	if s.ca, err = authorityOf(config); err != nil {
		return nil, err
	}
	if s.client, err = kubernetes.NewForConfigAndClient(typed, connection); err != nil {
		return nil, fmt.Errorf("controllers: client of %s: %w", config.Host, err)
	}
	if s.metadata, err = metadata.NewForConfigAndClient(config, connection); err != nil {
		return nil, fmt.Errorf("controllers: client of %s: %w", config.Host, err)
	}
	if s.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(config, connection); err != nil {
		return nil, fmt.Errorf("controllers: client of %s: %w", config.Host, err)
	}
	if s.scales, err = scales.New(config, connection, s.discovery); err != nil {
		return nil, fmt.Errorf("controllers: %w", err)
	}
	if s.metrics, err = autoscaler.NewClient(config, connection, s.discovery, s.scales.Mapper()); err != nil {
		return nil, fmt.Errorf("controllers: %w", err)
	}
	s.informers = informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithTransform(withoutManagedFields))
	return s, nil
}

// authorityOf reads the authority by which a client knows the API server.
func authorityOf(config *rest.Config) ([]byte, error) {
	if len(config.CAData) > 0 || config.CAFile == "" {
		return config.CAData, nil
	}
	ca, err := os.ReadFile(config.CAFile)
	if err != nil {
		return nil, fmt.Errorf("controllers: authority of %s: %w", config.Host, err)
	}
	return ca, nil
}

// withoutManagedFields drops what no controller reads, and what may be most of an object.
func withoutManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil && len(m.GetManagedFields()) > 0 {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

func (s *shared) recorder(component string) record.EventRecorder {
	return s.events.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: component})
}
