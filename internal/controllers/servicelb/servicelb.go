// Package servicelb is the controller that gives services of the type LoadBalancer their addresses: one of its own out of ranges, or, where there are none, those of
// the nodes, so that their ports are reached there.
//
// It guarantees that at most one service has an address of a range, or a port of the nodes, the one that had it first; that a port which a pod or a process of the
// machine has is not taken from it; and that a service which cannot have what it wants says why, in its condition LoadBalancerAddressError or
// LoadBalancerPortsError and by an event, and gets it when it is free. It is for services without a loadBalancerClass: others are others'.
package servicelb

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/iprange"
	"monopod.dev/monopod/internal/kit/queue"
)

// Listens says which process of this machine listens at a port of it, in words; empty: none.
type Listens func(protocol corev1.Protocol, port int32) string

// Config is what the controller needs. The informers are somebody else's to run.
type Config struct {
	Client   kubernetes.Interface
	Services coreinformers.ServiceInformer
	Nodes    coreinformers.NodeInformer
	Pods     coreinformers.PodInformer
	// Listens; nil: the nodes are other machines.
	Listens Listens
	// Ranges are of addresses that are load balancers'; none: services have those of the nodes.
	Ranges []iprange.Range
	Events record.EventRecorder
	Log    *slog.Logger
}

// Controller is the controller.
type Controller struct {
	cfg   Config
	queue *queue.Queue[string]
	sync  []cache.InformerSynced
	// holders are the pods that have ports of the nodes.
	holders holders
}

// all is the only item: who has a port concerns all services.
const all = "all"

// again is how long a port that a process has is waited for: nobody tells when it is free.
const again = 30 * time.Second

// New makes the controller.
func New(cfg Config) (*Controller, error) {
	c := &Controller{cfg: cfg, queue: queue.New[string]()}
	changed := func(matters func(any) bool) cache.ResourceEventHandlerFuncs {
		look := func(obj any) {
			if matters(obj) {
				c.queue.Add(all)
			}
		}
		return cache.ResourceEventHandlerFuncs{AddFunc: look, DeleteFunc: look, UpdateFunc: func(before, after any) {
			if !same(before, after) {
				look(before)
				look(after)
			}
		}}
	}
	for _, of := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{cfg.Services.Informer(), changed(func(obj any) bool {
			s, ok := informer.Last[*corev1.Service](obj)
			return ok && (ours(s) || stale(s))
		})},
		{cfg.Nodes.Informer(), changed(func(any) bool { return true })},
		{cfg.Pods.Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { c.pod(nil, obj) }, UpdateFunc: c.pod, DeleteFunc: func(obj any) { c.pod(obj, nil) },
		}},
	} {
		handle, err := of.informer.AddEventHandler(of.handler)
		if err != nil {
			return nil, err
		}
		c.sync = append(c.sync, handle.HasSynced)
	}
	return c, nil
}

// pod has all looked at when a port of the nodes has got another holder.
func (c *Controller) pod(before, after any) {
	was, _ := informer.Last[*corev1.Pod](before)
	is, _ := after.(*corev1.Pod)
	changed := false
	if was != nil && (is == nil || is.UID != was.UID) {
		changed = c.holders.set(was, nil)
	}
	if is != nil {
		changed = c.holders.set(is, hostPorts(is)) || changed
	}
	if changed {
		c.queue.Add(all)
	}
}

// same says that nothing of a node has changed that is looked at: its status is written every few minutes.
func same(before, after any) bool {
	a, ok := after.(*corev1.Node)
	b, also := before.(*corev1.Node)
	return ok && also && ready(a) == ready(b) && apiequality.Semantic.DeepEqual(a.Status.Addresses, b.Status.Addresses) && apiequality.Semantic.DeepEqual(a.Labels, b.Labels)
}

// Run works until ctx ends, which is no error.
func (c *Controller) Run(ctx context.Context) error {
	defer c.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.sync...) {
		return nil
	}
	c.queue.Add(all)
	c.queue.Run(ctx, 1, c.look, func(_ string, err error) {
		c.cfg.Log.Warn("services of the type LoadBalancer are not as they should be; trying again", "error", err)
	})
	return nil
}

// stale says that a service has addresses of the time when it was of the type LoadBalancer.
func stale(s *corev1.Service) bool {
	return s.Spec.Type != corev1.ServiceTypeLoadBalancer && (assigned(s) || slices.ContainsFunc(problems, func(p string) bool {
		return apimeta.FindStatusCondition(s.Status.Conditions, p) != nil
	}))
}

// look makes the statuses of all services as they should be.
func (c *Controller) look(ctx context.Context, _ string) error {
	every, err := c.cfg.Services.Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	mine := slices.DeleteFunc(slices.Clone(every), func(s *corev1.Service) bool { return !ours(s) })
	var failed error
	if len(mine) > 0 {
		if failed, err = c.assign(ctx, mine); err != nil {
			return err
		}
	}
	for _, s := range every {
		if stale(s) && s.DeletionTimestamp == nil {
			if err := c.write(ctx, s, decision{}); err != nil {
				failed = err
			}
		}
	}
	return failed
}

func (c *Controller) assign(ctx context.Context, mine []*corev1.Service) (failed, err error) {
	nodes, err := c.cfg.Nodes.Lister().List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var decided map[*corev1.Service]decision
	if all := inOrder(mine); len(c.cfg.Ranges) > 0 {
		decided = allot(all, nodes, c.cfg.Ranges)
	} else {
		decided = share(all, nodes, func(p port) string {
			if who := c.holders.who(p); who != "" || c.cfg.Listens == nil {
				return who
			}
			return c.cfg.Listens(p.protocol, p.number)
		})
	}
	for s, d := range decided {
		if err := c.write(ctx, s, d); err != nil {
			failed = fmt.Errorf("service %s/%s: %w", s.Namespace, s.Name, err)
		}
		if d.refused != "" {
			c.queue.AddAfter(all, again)
		}
	}
	return failed, nil
}

// says reports whether a service's status says what was decided: most do, and nothing is copied for them.
func says(s *corev1.Service, d decision) bool {
	for _, p := range problems {
		is := apimeta.FindStatusCondition(s.Status.Conditions, p)
		if p != d.problem && is != nil || p == d.problem &&
			(is == nil || is.Status != metav1.ConditionTrue || is.Reason != d.reason || is.Message != d.refused || is.ObservedGeneration != s.Generation) {
			return false
		}
	}
	return slices.EqualFunc(s.Status.LoadBalancer.Ingress, d.addresses, func(i corev1.LoadBalancerIngress, address string) bool {
		return i.IP == address && i.Hostname == "" && len(i.Ports) == 0 && i.IPMode != nil && *i.IPMode == corev1.LoadBalancerIPModeVIP
	})
}

// write makes a service's status say what was decided.
func (c *Controller) write(ctx context.Context, s *corev1.Service, d decision) error {
	if says(s, d) {
		return nil
	}
	next := s.DeepCopy()
	mode := corev1.LoadBalancerIPModeVIP
	next.Status.LoadBalancer.Ingress = nil
	for _, a := range d.addresses {
		next.Status.LoadBalancer.Ingress = append(next.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a, IPMode: &mode})
	}
	for _, p := range problems {
		if p != d.problem {
			apimeta.RemoveStatusCondition(&next.Status.Conditions, p)
		}
	}
	if d.refused != "" {
		apimeta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
			Type: d.problem, Status: metav1.ConditionTrue, Reason: d.reason, Message: d.refused, ObservedGeneration: s.Generation,
		})
	}
	if apiequality.Semantic.DeepEqual(s.Status, next.Status) {
		return nil
	}
	_, err := c.cfg.Client.CoreV1().Services(s.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // what it is now is on its way to the informer
	}
	if err != nil {
		return err
	}
	switch {
	case d.refused != "":
		c.cfg.Events.Event(s, corev1.EventTypeWarning, d.reason, d.refused)
	case len(d.addresses) > 0:
		c.cfg.Events.Eventf(s, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Reached at %v", d.addresses)
	}
	return nil
}
