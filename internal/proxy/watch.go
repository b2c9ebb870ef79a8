package proxy

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/kit/informer"
)

// byService is the index of slices by their services.
const byService = "service"

const (
	// ofOthers leaves out what is another proxy's, or nobody's: endpoints of headless services are reached without a proxy.
	ofOthers = "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name"
	// servicesOfOthers is the same for services, which bear no label when they are headless.
	servicesOfOthers = "!service.kubernetes.io/service-proxy-name"
)

// mayRead asks for one of each kind that is watched.
func (p *Proxy) mayRead(ctx context.Context) error {
	one := metav1.ListOptions{Limit: 1}
	if _, err := p.cfg.Kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, one); err != nil {
		return err
	}
	_, err := p.cfg.Kube.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(ctx, one)
	return err
}

// maySeeNodes says whether there are addresses to announce, and this role may see which nodes there are to do so. Without that services are served all the same.
func (p *Proxy) maySeeNodes(ctx context.Context) bool {
	if !p.sharesAddresses() {
		return false
	}
	_, err := p.cfg.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsForbidden(err) {
		p.log.ErrorContext(ctx, "addresses of load balancers are not announced: other nodes cannot be seen, of which one is to do so", "error", err, "remedy", permit+", and start again")
		return false
	}
	return true // or it can be asked in a moment
}

// watch begins to watch, and returns when all has been read once; false: ctx has ended before.
func (p *Proxy) watch(ctx context.Context, wg *sync.WaitGroup) bool {
	all, slices, nodes := p.cfg.Kube.CoreV1().Services(metav1.NamespaceAll), p.cfg.Kube.DiscoveryV1().EndpointSlices(metav1.NamespaceAll), p.cfg.Kube.CoreV1().Nodes()
	which := fields.Everything().String()
	if p.seesNodes = p.maySeeNodes(ctx); !p.seesNodes {
		which = fields.OneTermEqualSelector("metadata.name", p.cfg.NodeName).String()
	}
	var synced []<-chan struct{}
	begin := func(kind runtime.Object, indexers cache.Indexers, transform cache.TransformFunc, tell func(obj any), narrow func(*metav1.ListOptions),
		list func(context.Context, metav1.ListOptions) (runtime.Object, error), follow func(context.Context, metav1.ListOptions) (watch.Interface, error),
	) cache.Indexer {
		store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					narrow(&o)
					return list(ctx, o)
				},
				WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
					narrow(&o)
					return follow(ctx, o)
				},
			}, p.cfg.Kube),
			ObjectType: kind, Indexers: indexers, Transform: transform,
			Handler: cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(before, after any) { tell(before); tell(after) }, DeleteFunc: tell},
		})
		synced = append(synced, controller.HasSyncedChecker().Done())
		wg.Go(func() { controller.RunWithContext(ctx) })
		return store.(cache.Indexer)
	}
	p.services = begin(&corev1.Service{}, cache.Indexers{}, slimService, func(obj any) {
		if s, ok := informer.Last[*corev1.Service](obj); ok {
			p.mark(s.Namespace + "/" + s.Name)
		}
	}, func(o *metav1.ListOptions) { o.LabelSelector = servicesOfOthers },
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) }, all.Watch)
	p.slices = begin(&discoveryv1.EndpointSlice{}, cache.Indexers{byService: func(obj any) ([]string, error) { return serviceOf(obj), nil }}, slimSlice,
		func(obj any) { p.mark(serviceOf(obj)...) }, func(o *metav1.ListOptions) { o.LabelSelector = ofOthers },
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return slices.List(ctx, o) }, slices.Watch)
	p.nodes = begin(&corev1.Node{}, cache.Indexers{}, slimNode, func(any) { p.markNodes() }, func(o *metav1.ListOptions) { o.FieldSelector = which },
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return nodes.List(ctx, o) }, nodes.Watch)
	for _, done := range synced {
		select {
		case <-done:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// serviceOf is the service of a slice.
func serviceOf(obj any) []string {
	s, ok := informer.Last[*discoveryv1.EndpointSlice](obj)
	if !ok || s.Labels[discoveryv1.LabelServiceName] == "" {
		return nil
	}
	return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
}

// identity keeps of an object's metadata what the watch itself and the plan read.
func identity(m metav1.ObjectMeta, labels ...string) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp}
	for _, l := range labels {
		if v, there := m.Labels[l]; there {
			if kept.Labels == nil {
				kept.Labels = map[string]string{}
			}
			kept.Labels[l] = v
		}
	}
	return kept
}

func slimService(obj any) (any, error) {
	s, ok := obj.(*corev1.Service)
	if !ok {
		return obj, nil
	}
	kept := &corev1.Service{ObjectMeta: identity(s.ObjectMeta), Spec: s.Spec, Status: s.Status}
	kept.Spec.Selector, kept.Status.Conditions = nil, nil
	return kept, nil
}

func slimSlice(obj any) (any, error) {
	s, ok := informer.Last[*discoveryv1.EndpointSlice](obj)
	if !ok {
		return obj, nil
	}
	kept := &discoveryv1.EndpointSlice{ObjectMeta: identity(s.ObjectMeta, discoveryv1.LabelServiceName), AddressType: s.AddressType, Ports: s.Ports}
	for _, e := range s.Endpoints {
		kept.Endpoints = append(kept.Endpoints, discoveryv1.Endpoint{Addresses: e.Addresses[:min(1, len(e.Addresses))], Conditions: e.Conditions, NodeName: e.NodeName, Hints: e.Hints})
	}
	return kept, nil
}

func slimNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	kept := &corev1.Node{ObjectMeta: identity(n.ObjectMeta, corev1.LabelTopologyZone, corev1.LabelNodeExcludeBalancers), Spec: corev1.NodeSpec{PodCIDRs: n.Spec.PodCIDRs}}
	kept.DeletionTimestamp, kept.Status.Addresses = n.DeletionTimestamp, n.Status.Addresses
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			kept.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return kept, nil
}
