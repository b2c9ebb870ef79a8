// Package ingresses tells whoever has made an Ingress that no controller can take it: it is of a class that is not there, or of none. What controllers do with those
// that they take it leaves alone.
package ingresses

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/queue"
)

// The reasons of events.
const (
	ClassNotFound = "IngressClassNotFound"
	NoClass       = "NoIngressClass"
)

// legacyClass is what named a class before spec.ingressClassName did. There are controllers that know their class by it alone, without an IngressClass.
const legacyClass = "kubernetes.io/ingress.class"

// Config is what a Controller needs.
type Config struct {
	// Ingresses and Classes are watched by others, too; who made the Controller starts them.
	Ingresses networkinginformers.IngressInformer
	Classes   networkinginformers.IngressClassInformer
	Events    record.EventRecorder
	Log       *slog.Logger
}

// Controller tells of Ingresses that nobody takes.
type Controller struct {
	config    Config
	ingresses networkinglisters.IngressLister
	classes   networkinglisters.IngressClassLister
	queue     *queue.Queue[cache.ObjectName]
	known     []cache.DoneChecker

	mu   sync.Mutex
	said map[types.UID]string // what was said of an Ingress last
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{
		config: config, ingresses: config.Ingresses.Lister(), classes: config.Classes.Lister(), queue: queue.New[cache.ObjectName](), said: map[types.UID]string{},
	}
	ingresses, err := config.Ingresses.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.look, UpdateFunc: func(_, obj any) { c.look(obj) }, DeleteFunc: c.forget,
	})
	if err != nil {
		return nil, fmt.Errorf("watch ingresses: %w", err)
	}
	classes, err := config.Classes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.lookAtAll() }, DeleteFunc: func(any) { c.lookAtAll() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch ingress classes: %w", err)
	}
	c.known = []cache.DoneChecker{ingresses.HasSyncedChecker(), classes.HasSyncedChecker()}
	return c, nil
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error {
	cache.WaitFor(ctx, "", c.known...)
	c.queue.Run(ctx, 1, c.sync, func(name cache.ObjectName, err error) {
		c.config.Log.Warn("an ingress is not looked at, trying again", "namespace", name.Namespace, "ingress", name.Name, "error", err)
	})
	return nil
}

func (c *Controller) look(obj any) {
	if i, ok := obj.(*networkingv1.Ingress); ok {
		c.queue.Add(cache.MetaObjectToName(i))
	}
}

// lookAtAll is for when a class has come or gone.
func (c *Controller) lookAtAll() {
	all, err := c.ingresses.List(labels.Everything())
	if err != nil {
		return // a cache has no errors
	}
	for _, i := range all {
		c.look(i)
	}
}

func (c *Controller) forget(obj any) {
	if i, ok := informer.Last[*networkingv1.Ingress](obj); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.said, i.UID)
	}
}

func (c *Controller) sync(_ context.Context, name cache.ObjectName) error {
	i, err := c.ingresses.Ingresses(name.Namespace).Get(name.Name)
	if err != nil {
		return nil // it is gone
	}
	classes, err := c.classes.List(labels.Everything())
	if err != nil {
		return err
	}
	reason, message := lacks(i, classes)
	c.mu.Lock()
	news := c.said[i.UID] != message
	c.said[i.UID] = message
	c.mu.Unlock()
	if news && message != "" {
		c.config.Events.Event(i, corev1.EventTypeWarning, reason, message)
	}
	return nil
}

// lacks says why no controller can take an Ingress; empty: one can, or has taken it. It is pure.
func lacks(i *networkingv1.Ingress, classes []*networkingv1.IngressClass) (reason, message string) {
	class := i.Spec.IngressClassName
	switch {
	case i.DeletionTimestamp != nil || len(i.Status.LoadBalancer.Ingress) > 0:
		return "", "" // somebody has given it an address
	case class == nil && i.Annotations[legacyClass] != "":
		return "", ""
	case class == nil:
		return NoClass, "It names no IngressClass (spec.ingressClassName), and there was no default one when it was made: no requests are led by it, unless a controller takes Ingresses without a class"
	}
	for _, c := range classes {
		if c.Name == *class {
			return "", ""
		}
	}
	return ClassNotFound, fmt.Sprintf("There is no IngressClass %q, so no controller takes it: install an ingress controller that has the class, or name another one", *class)
}
