// Package servicecidr is the controller of ServiceCIDRs: it says of each that it is ready to be used, and keeps one that is deleted, by a finalizer, for as long
// as it has addresses of services that no other range has.
package servicecidr

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/kit/queue"
)

const (
	// Finalizer holds a range that is deleted, by the name that upstream's controller gives it.
	Finalizer = "networking.k8s.io/service-cidr-finalizer"
	// manager is who makes the IPAddresses of services.
	manager = "ipallocator.k8s.io"
	// grace is how long a range stays at least that is deleted: until then every API server has heard of it, and gives out nothing more of it.
	grace = 10 * time.Second
)

// Config is what the controller needs. The informers are somebody else's to run.
type Config struct {
	Client    kubernetes.Interface
	Ranges    networkinginformers.ServiceCIDRInformer
	Addresses networkinginformers.IPAddressInformer
	Log       *slog.Logger
}

// Controller is the controller.
type Controller struct {
	cfg   Config
	queue *queue.Queue[string]
	sync  []cache.InformerSynced
}

// New makes the controller.
func New(cfg Config) (*Controller, error) {
	c := &Controller{cfg: cfg, queue: queue.New[string]()}
	of := func(obj any) {
		if r, ok := obj.(*networkingv1.ServiceCIDR); ok {
			c.queue.Add(r.Name)
		}
	}
	handle, err := cfg.Ranges.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { of(obj); c.leaving() }, // which may be needed no more
		UpdateFunc: func(_, obj any) { of(obj) },
		DeleteFunc: func(any) { c.leaving() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch ServiceCIDRs: %w", err)
	}
	c.sync = append(c.sync, handle.HasSynced)
	if handle, err = cfg.Addresses.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { c.leaving() }}); err != nil {
		return nil, fmt.Errorf("watch IPAddresses: %w", err)
	}
	c.sync = append(c.sync, handle.HasSynced)
	return c, nil
}

// leaving has all ranges looked at again that are being deleted.
func (c *Controller) leaving() {
	all, err := c.cfg.Ranges.Lister().List(labels.Everything())
	if err != nil {
		return // a lister of a cache does not fail
	}
	for _, r := range all {
		if r.DeletionTimestamp != nil {
			c.queue.Add(r.Name)
		}
	}
}

// Run works until ctx ends, which is no error.
func (c *Controller) Run(ctx context.Context) error {
	defer c.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.sync...) {
		return nil
	}
	c.queue.Run(ctx, 1, c.look, func(name string, err error) {
		c.cfg.Log.Warn("a ServiceCIDR is not as it should be; trying again", "servicecidr", name, "error", err)
	})
	return nil
}

func (c *Controller) look(ctx context.Context, name string) error {
	r, err := c.cfg.Ranges.Lister().Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if r.DeletionTimestamp == nil {
		if !slices.Contains(r.Finalizers, Finalizer) {
			return c.finalize(ctx, r, append(slices.Clone(r.Finalizers), Finalizer)) // its update brings it here again
		}
		return c.say(ctx, r, metav1.Condition{Status: metav1.ConditionTrue, Reason: "Available", Message: "Services get addresses of it"})
	}
	if !slices.Contains(r.Finalizers, Finalizer) {
		return nil // others hold it
	}
	all, err := c.cfg.Ranges.Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	addresses, err := c.cfg.Addresses.Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	message := "It goes when every API server has heard of its deletion"
	needed := needs(r, all, addresses)
	left := grace - time.Since(r.DeletionTimestamp.Time)
	switch {
	case needed != "":
		message = fmt.Sprintf("There are still services with addresses of it, %s first: delete them, or create a ServiceCIDR that has these addresses", needed)
	case left > 0:
		c.queue.AddAfter(name, left)
	default:
		return c.finalize(ctx, r, slices.DeleteFunc(slices.Clone(r.Finalizers), func(f string) bool { return f == Finalizer }))
	}
	return c.say(ctx, r, metav1.Condition{Status: metav1.ConditionFalse, Reason: networkingv1.ServiceCIDRReasonTerminating, Message: message})
}

func (c *Controller) finalize(ctx context.Context, r *networkingv1.ServiceCIDR, finalizers []string) error {
	next := r.DeepCopy()
	next.Finalizers = finalizers
	_, err := c.cfg.Client.NetworkingV1().ServiceCIDRs().Update(ctx, next, metav1.UpdateOptions{})
	return unlessChanged(err)
}

// say makes the condition Ready what it should be. What is said of a range that is ready stays as it was said.
func (c *Controller) say(ctx context.Context, r *networkingv1.ServiceCIDR, condition metav1.Condition) error {
	condition.Type = networkingv1.ServiceCIDRConditionReady
	is := apimeta.FindStatusCondition(r.Status.Conditions, condition.Type)
	if is != nil && is.Status == condition.Status && (condition.Status == metav1.ConditionTrue || is.Reason == condition.Reason && is.Message == condition.Message) {
		return nil
	}
	next := r.DeepCopy()
	apimeta.SetStatusCondition(&next.Status.Conditions, condition)
	_, err := c.cfg.Client.NetworkingV1().ServiceCIDRs().UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return unlessChanged(err)
}

// unlessChanged: what it is now is on its way to the informer.
func unlessChanged(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
