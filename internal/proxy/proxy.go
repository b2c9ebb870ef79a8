package proxy

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/kit/iprange"
	"monopod.dev/monopod/internal/kit/wait"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/internal/proxy/announce"
	"monopod.dev/monopod/internal/proxy/plan"
	"monopod.dev/monopod/internal/proxy/table"
)

// Config says what the role works with.
type Config struct {
	// Kube reaches the API server. It may list and watch services, endpointslices and the node, and where there are balancers all nodes, and create events.
	Kube     kubernetes.Interface
	NodeName string
	// Networks are those that the node's pods are connected to, where nobody else connects them.
	Networks podnet.Networks
	// Balancers are ranges of addresses that are load balancers' alone.
	Balancers []iprange.Range
	// External are the ranges of addresses that spec.externalIPs of services may name; none: none is led to a service. Closed are those of pods and services, which no
	// service takes by naming them.
	External, Closed []iprange.Range
	// OwnPorts are those at which the node itself serves.
	OwnPorts []OwnPort
	// Listens says which process of the node's listens at a port, at whichever address: empty: none does. Nil: nobody knows.
	Listens func(protocol corev1.Protocol, port int32) string
	// Dir is the directory of what has to outlive the process: which of those addresses the host has. It is made.
	Dir string
	Log *slog.Logger
}

// OwnPort is a port of the node's.
type OwnPort struct {
	Protocol corev1.Protocol
	Port     int32
}

// Proxy is the role.
type Proxy struct {
	cfg   Config
	log   *slog.Logger
	ready chan struct{}
	wake  chan struct{} // holds one value when something is pending

	services, slices, nodes cache.Indexer
	table                   *table.Table
	health                  *healthServer
	events                  record.EventBroadcaster
	recorder                record.EventRecorder
	announced               *announced // nil: addresses are none that could be announced

	mu      sync.Mutex
	pending map[string]bool // services that are to be looked at, namespace/name
	ofNodes bool            // something of a node has changed

	// Of Run's goroutine only.
	seesNodes  bool                // all of the cluster, and not only its own
	announcers []string            // the nodes that announce addresses
	nodesKnown string              // what services follow from of nodes
	ownKnown   []netip.Addr        // the node's addresses, since take; nil: nobody has asked
	faults     map[string]string   // what was said of a service
	failed     map[string]bool     // what the kernel has refused
	loopback   map[string]loopback // what was found out of a service
	pause      time.Duration       // before it is tried again
}

// New makes the role. It does nothing before Run.
func New(cfg Config) *Proxy {
	p := &Proxy{cfg: cfg, log: cfg.Log, ready: make(chan struct{}), wake: make(chan struct{}, 1), pending: map[string]bool{}, faults: map[string]string{}, failed: map[string]bool{}, loopback: map[string]loopback{}}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	return p
}

// Remove takes away what a proxy of a node with these networks and this directory has left. It is for when no proxy runs, and idempotent.
func Remove(ctx context.Context, networks podnet.Networks, dir string) error {
	err := announce.Remove(dir) // first: nothing else than services is to be reached at them
	t, terr := table.Open(ctx, table.Config{Name: networks.ServicesTable()})
	if terr != nil {
		return errors.Join(err, terr)
	}
	defer t.Close()
	return errors.Join(err, t.Remove())
}

// Ready is closed when packets are led as the API said at the start, or could not be, which the log says.
func (p *Proxy) Ready() <-chan struct{} { return p.ready }

const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// Run leads packets until ctx ends. The rules stay, and do their work, until the next one, or Remove.
func (p *Proxy) Run(ctx context.Context) error {
	attempted := sync.OnceFunc(func() { close(p.ready) })
	defer attempted()
	if err := p.permitted(ctx, attempted); err != nil {
		return nil // ctx has ended
	}
	var err error
	if p.table, err = table.Open(ctx, table.Config{Name: p.cfg.Networks.ServicesTable(), Networks: p.cfg.Networks, Guards: p.sharesAddresses(), Log: p.log}); err != nil {
		return err
	}
	defer p.table.Close()
	p.events = record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	defer p.events.Shutdown()
	p.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: p.cfg.Kube.CoreV1().Events("")})
	p.recorder = p.events.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: component, Host: p.cfg.NodeName})
	if p.announced, err = p.openAnnounced(); err != nil {
		p.log.ErrorContext(ctx, "addresses of load balancers are not announced", "error", err)
	}
	defer p.announced.close()
	p.health = newHealthServer(p.log)
	defer p.health.close()
	watch, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	if !p.watch(watch, &wg) {
		return nil
	}
	for p.pause = firstPause; ; p.pause = min(2*p.pause, longestPause) {
		if err = p.begin(ctx); err == nil {
			break
		}
		p.log.ErrorContext(ctx, "packets for services are not led to their endpoints; trying again", "error", err, "after", p.pause)
		attempted()
		if wait.For(ctx, p.pause) != nil {
			return nil
		}
	}
	p.announced.start(watch, &wg)
	p.log.InfoContext(ctx, "services are served", "services", len(p.services.ListKeys()), "table", p.cfg.Networks.ServicesTable())
	attempted()
	p.follow(ctx)
	return nil
}

// permit is how an administrator lets agents be proxies.
const permit = "kubectl create clusterrolebinding monopod-proxy --clusterrole=system:node-proxier --group=system:nodes"

// permitted returns when the API lets this role read what it needs.
func (p *Proxy) permitted(ctx context.Context, attempted func()) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := p.mayRead(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		remedy := "is the API server there?"
		if apierrors.IsForbidden(err) {
			remedy = permit
		}
		p.log.ErrorContext(ctx, "services cannot be read; trying again", "error", err, "after", pause, "remedy", remedy)
		attempted()
		if wait.For(ctx, pause) != nil {
			return ctx.Err()
		}
	}
}

// begin makes the kernel have what is known now.
func (p *Proxy) begin(ctx context.Context) error {
	p.take()
	p.learnNodes()
	wanted := map[string]table.Service{}
	for _, key := range p.services.ListKeys() {
		if s := p.plan(ctx, key); s != nil {
			wanted[key] = *s
		}
	}
	refused, err := p.table.Start(ctx, p.ranges(), wanted)
	if err != nil {
		return err
	}
	p.refused(ctx, slices.Collect(maps.Keys(wanted)), refused)
	if p.pause = firstPause; len(p.failed) > 0 {
		p.mark(slices.Collect(maps.Keys(p.failed))...)
	}
	return nil
}

// follow does what is pending, as soon as it is, all of it together: what comes while the kernel is busy is done with the next transaction.
func (p *Proxy) follow(ctx context.Context) {
	retry := time.NewTimer(time.Hour)
	retry.Stop()
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-retry.C:
			p.mark(slices.Collect(maps.Keys(p.failed))...)
			p.pause = min(2*p.pause, longestPause)
			continue
		case <-p.wake:
		}
		keys, ofNodes := p.take()
		if ofNodes && p.learnNodes() { // a Node is written every few minutes
			keys = append(keys, p.services.ListKeys()...)
			if err := p.table.SetRanges(p.ranges()); err != nil {
				p.log.ErrorContext(ctx, "the ranges of this node's pods are not known to the rules of services", "error", err)
			}
		}
		changes := map[string]*table.Service{}
		for _, key := range keys {
			changes[key] = p.plan(ctx, key)
		}
		p.refused(ctx, keys, p.table.Apply(ctx, changes))
		p.announced.want()
		if len(p.failed) > 0 {
			retry.Reset(p.pause)
		} else {
			p.pause = firstPause
		}
	}
}

// refused notes what the kernel has refused of those that were tried.
func (p *Proxy) refused(ctx context.Context, tried []string, refused map[string]error) {
	defer func() {
		for _, key := range p.health.missing() { // whoever has its port may go
			p.failed[key] = true
		}
	}()
	for _, key := range tried {
		err := refused[key]
		if err == nil {
			delete(p.failed, key)
			continue
		}
		p.failed[key] = true
		p.log.ErrorContext(ctx, "a service is not served as the API says; trying again", "service", key, "error", err, "after", p.pause)
	}
}

// plan is what is wanted for a service now; nil: nothing.
func (p *Proxy) plan(ctx context.Context, key string) *table.Service {
	obj, exists, err := p.services.GetByKey(key)
	if err != nil || !exists {
		p.announced.set(key, nil, nil)
		p.health.set(key, nil)
		delete(p.faults, key)
		delete(p.loopback, key)
		return nil
	}
	in := p.input(key, obj.(*corev1.Service))
	found, err := p.slices.ByIndex(byService, key)
	if err != nil {
		p.log.ErrorContext(ctx, "the endpoints of a service are not found", "service", key, "error", err)
	}
	for _, o := range found {
		in.Slices = append(in.Slices, o.(*discoveryv1.EndpointSlice))
	}
	s := &table.Service{Created: in.Service.CreationTimestamp.Time, Plan: plan.Of(in)}
	p.announced.set(key, in.Service, s.Plan.Announced)
	p.health.set(key, s.Plan.HealthCheck)
	p.tell(ctx, key, in.Service, &s.Plan)
	return s
}

// zone is the node's.
func (p *Proxy) zone() string {
	if n := p.ownNode(); n != nil {
		return n.Labels[corev1.LabelTopologyZone]
	}
	return ""
}

func (p *Proxy) ownNode() *corev1.Node {
	obj, exists, err := p.nodes.GetByKey(p.cfg.NodeName)
	if err != nil || !exists {
		return nil
	}
	return obj.(*corev1.Node)
}

// ownAddresses are the node's as its status has them.
func (p *Proxy) ownAddresses() []corev1.NodeAddress {
	if n := p.ownNode(); n != nil {
		return n.Status.Addresses
	}
	return nil
}

// ranges are those of this node's pods as the cluster knows them.
func (p *Proxy) ranges() (all []netip.Prefix) {
	n := p.ownNode()
	if n == nil {
		return nil
	}
	for _, s := range n.Spec.PodCIDRs {
		if r, err := netip.ParsePrefix(s); err == nil {
			all = append(all, r.Masked())
		}
	}
	return all
}

// mark says which services are to be looked at.
func (p *Proxy) mark(keys ...string) {
	p.mu.Lock()
	for _, k := range keys {
		p.pending[k] = true
	}
	p.mu.Unlock()
	p.wakeUp()
}

// markNodes says that something of a node has changed.
func (p *Proxy) markNodes() {
	p.mu.Lock()
	p.ofNodes = true
	p.mu.Unlock()
	p.wakeUp()
}

func (p *Proxy) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take takes what is pending. What was found out of the host before is forgotten.
func (p *Proxy) take() (keys []string, ofNodes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys, ofNodes = slices.Collect(maps.Keys(p.pending)), p.ofNodes
	clear(p.pending)
	p.ofNodes, p.ownKnown = false, nil
	return keys, ofNodes
}
