// Package endpoints is the controller that says behind every service which pods are there: in EndpointSlices, and in Endpoints for clients that know no
// slices. What somebody has written as the Endpoints of a service without a selector it shows as slices, too.
//
// It works level-triggered over informers of client-go and changes nothing that is as it should be already. Slices hold at most 100 endpoints and bear the
// labels of upstream's controllers, so that these can take its place, and it theirs. How slices are filled is upstream's own library
// (k8s.io/endpointslice).
package endpoints

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/topologycache"
	"k8s.io/endpointslice/util"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/queue"
)

// The values of the label endpointslice.kubernetes.io/managed-by, upstream's.
const (
	sliceController  = "endpointslice-controller.k8s.io"
	mirrorController = "endpointslicemirroring-controller.k8s.io"
)

const (
	// maxPerSlice is how many endpoints a slice has at most.
	maxPerSlice = 100
	// workers is how many services are looked at at once.
	workers = 2
)

// Config is what a Controller needs.
type Config struct {
	Kube kubernetes.Interface
	// Informers are shared with others. Run starts those that are not started yet.
	Informers informers.SharedInformerFactory
	// Events says what does not fit.
	Events record.EventRecorder
	Log    *slog.Logger
}

// Controller is the controller. Make it with New.
type Controller struct {
	cfg       Config
	services  corelisters.ServiceLister
	endpoints corelisters.EndpointsLister
	slices    cache.Indexer
	// selectors are the services by what they select, pods those by their labels: of one that changes not all are looked at.
	selectors *owned.Selectors[*corev1.Service]
	pods      *owned.Labelled[*corev1.Pod]
	synced    []cache.InformerSynced
	queue     *queue.Queue[cache.ObjectName]
	filler    *endpointslice.Reconciler
	// written are the slices, by who is said to have made them, that were written and that the informer may not have yet; sliceTimes and times are when
	// what they follow from has changed.
	written           map[string]*util.EndpointSliceTracker
	sliceTimes, times *util.TriggerTimeTracker
	// deleted are the services that were seen to go and have not been looked at since as gone. There may be another one of the name by then.
	deleted *deletions
}

// New makes a controller; it does nothing before Run.
func New(cfg Config) (*Controller, error) {
	core := cfg.Informers.Core().V1()
	services, pods, endpoints, slices := core.Services(), core.Pods(), core.Endpoints(), cfg.Informers.Discovery().V1().EndpointSlices()
	c := &Controller{
		cfg: cfg, services: services.Lister(), endpoints: endpoints.Lister(), slices: slices.Informer().GetIndexer(),
		written:    map[string]*util.EndpointSliceTracker{sliceController: util.NewEndpointSliceTracker(), mirrorController: util.NewEndpointSliceTracker()},
		sliceTimes: util.NewTriggerTimeTracker(), times: util.NewTriggerTimeTracker(),
		selectors: owned.NewSelectors(selectorOf), pods: owned.NewLabelled[*corev1.Pod](), queue: queue.New[cache.ObjectName](), deleted: &deletions{},
	}
	if err := indexByService(slices.Informer()); err != nil {
		return nil, err
	}
	c.filler = endpointslice.NewReconciler(cfg.Kube, core.Nodes().Lister(), maxPerSlice, c.written[sliceController], topologycache.NewTopologyCache(), cfg.Events,
		sliceController, endpointslice.WithPreferSameTrafficDistributionEnabled(true))
	for _, of := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{services.Informer(), c.selectors.Keep(cache.ResourceEventHandlerFuncs{
			AddFunc:    c.ofService,
			UpdateFunc: func(_, obj any) { c.ofService(obj) },
			DeleteFunc: func(obj any) {
				if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
					c.deleted.add(name)
				}
				c.ofService(obj)
			},
		})},
		{endpoints.Informer(), owned.Each(c.queue.Add)},
		{pods.Informer(), c.pods.Keep(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { c.ofPod(nil, obj) },
			UpdateFunc: c.ofPod,
			DeleteFunc: func(obj any) {
				if pod, ok := informer.Last[*corev1.Pod](obj); ok {
					c.ofPod(pod, nil)
				}
			},
		})},
		{slices.Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { c.ofSlice(obj, false) },
			UpdateFunc: func(_, obj any) { c.ofSlice(obj, false) },
			DeleteFunc: func(obj any) { c.ofSlice(obj, true) },
		}},
		{core.Nodes().Informer(), cache.ResourceEventHandlerFuncs{}},
	} {
		registration, err := of.informer.AddEventHandler(of.handler)
		if err != nil {
			return nil, fmt.Errorf("endpoints: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return c, nil
}

// ofService: a service has changed.
func (c *Controller) ofService(obj any) {
	if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		c.queue.Add(name)
	}
}

// ofPod: the services that a pod is, or was, behind are to be looked at, if it has changed in what they are told.
func (c *Controller) ofPod(before, after any) {
	change := util.GetPodUpdateProjectionKey(before, after)
	if change == nil {
		return
	}
	now := c.selectors.About(change.Namespace, change.Labels)
	var was []cache.ObjectName
	if change.OldLabels != nil {
		was = c.selectors.About(change.Namespace, change.OldLabels)
	}
	look := func(these, others []cache.ObjectName) {
		for _, name := range these {
			if change.OldLabels == nil || change.PodChanged || !slices.Contains(others, name) { // for a service that it stays behind other labels are no change
				c.queue.Add(name)
			}
		}
	}
	look(now, was)
	look(was, now)
}

// selectorOf is what a service selects; nil: nothing.
func selectorOf(service *corev1.Service) *metav1.LabelSelector {
	if service.Spec.Selector == nil {
		return nil
	}
	return &metav1.LabelSelector{MatchLabels: service.Spec.Selector}
}

// ofSlice: a slice has changed otherwise than this controller has written it.
func (c *Controller) ofSlice(obj any, gone bool) {
	slice, ok := informer.Last[*discoveryv1.EndpointSlice](obj)
	service := ""
	if ok {
		service = slice.Labels[discoveryv1.LabelServiceName]
	}
	if service == "" {
		return
	}
	written := c.written[slice.Labels[discoveryv1.LabelManagedBy]]
	if written == nil || !gone && !written.ShouldSync(slice) || gone && written.Has(slice) && written.HandleDeletion(slice) {
		return
	}
	c.queue.Add(cache.NewObjectName(slice.Namespace, service))
}

// Run works until ctx ends, and returns when its goroutines have ended.
func (c *Controller) Run(ctx context.Context) error {
	c.cfg.Informers.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		c.queue.ShutDown()
		return nil // ctx has ended
	}
	c.queue.Run(ctx, workers, c.sync, c.failed)
	return nil
}

// failed tells of what is not the cache's or another writer's moment: an object that is not found went with its service.
func (c *Controller) failed(name cache.ObjectName, err error) {
	if !errors.Is(err, errStale) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		c.cfg.Log.Warn("the endpoints of a service are not as they should be; trying again", "namespace", name.Namespace, "service", name.Name, "error", err)
	}
}

// errStale: the informer has not seen yet what was written.
var errStale = errors.New("the cache of endpoints is behind")

// sync makes all that follows from a service as it should be.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) error {
	service, err := c.services.Services(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return c.gone(ctx, name)
	}
	if err != nil {
		return err
	}
	if service.DeletionTimestamp != nil || service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	if service.Spec.Selector == nil {
		return c.mirror(ctx, service)
	}
	pods := c.pods.Selected(service.Namespace, selectorOf(service))
	return errors.Join(c.fillSlices(service, pods), c.fillEndpoints(ctx, service, pods), c.removeMirrors(ctx, service.Namespace, service.Name))
}

// gone: the slices of a service go with it, by their owner. The Endpoints have none. Somebody's own go only with a service that was seen to go: they may be
// there before their service, or without one.
func (c *Controller) gone(ctx context.Context, name cache.ObjectName) error {
	c.filler.DeleteService(name.Namespace, name.Name)
	for _, written := range c.written {
		written.DeleteService(name.Namespace, name.Name)
	}
	c.sliceTimes.DeleteService(name.Namespace, name.Name)
	c.times.DeleteService(name.Namespace, name.Name)
	seen := c.deleted.take(name)
	err := c.removeEndpoints(ctx, name, seen)
	if err != nil && seen {
		c.deleted.add(name)
	}
	return errors.Join(err, c.removeMirrors(ctx, name.Namespace, name.Name))
}

func (c *Controller) fillSlices(service *corev1.Service, pods []*corev1.Pod) error {
	slices, err := c.slicesOf(service.Namespace, service.Name, sliceController)
	if err != nil {
		return err
	}
	if c.written[sliceController].StaleSlices(service, slices) {
		return errStale
	}
	// Who reads objects of the cache must not change them, and the library does.
	for i := range slices {
		slices[i] = slices[i].DeepCopy()
	}
	changed := c.sliceTimes.ComputeEndpointLastChangeTriggerTime(service.Namespace, service, pods)
	return c.filler.Reconcile(logr.FromSlogHandler(c.cfg.Log.Handler()), service, pods, slices, changed)
}

// byService is the index of slices by their service.
const byService = "monopod.dev/by-service"

func indexByService(informer cache.SharedIndexInformer) error {
	if _, has := informer.GetIndexer().GetIndexers()[byService]; has {
		return nil
	}
	err := informer.AddIndexers(cache.Indexers{byService: func(obj any) ([]string, error) {
		s, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok {
			return nil, nil
		}
		return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}, nil
	}})
	if err != nil {
		return fmt.Errorf("index slices by service: %w", err)
	}
	return nil
}

// slicesOf are the slices of a service that a controller has made.
func (c *Controller) slicesOf(namespace, service, controller string) (all []*discoveryv1.EndpointSlice, err error) {
	list, err := c.slices.ByIndex(byService, namespace+"/"+service)
	if err != nil {
		return nil, fmt.Errorf("slices of a service: %w", err)
	}
	for _, obj := range list {
		if s, ok := obj.(*discoveryv1.EndpointSlice); ok && s.Labels[discoveryv1.LabelManagedBy] == controller {
			all = append(all, s)
		}
	}
	return all, nil
}
