package volumebinding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	coreinformers "k8s.io/client-go/informers/core/v1"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/kubernetes"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	helpers "k8s.io/component-helpers/storage/volume"

	"monopod.dev/monopod/internal/controllers/storageindex"
	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/queue"
)

// workers is how many claims, and how many volumes, are worked on at a time.
const workers = 5

// between is the shortest time from one look at all claims of a class that have no volume to the next one.
const between = time.Second

// Config is what a Controller needs.
type Config struct {
	// Client has the right to get and update claims and volumes, and to update their statuses.
	Client kubernetes.Interface
	// These are watched by others, too; who made the Controller starts them.
	Claims  coreinformers.PersistentVolumeClaimInformer
	Volumes coreinformers.PersistentVolumeInformer
	Classes storageinformers.StorageClassInformer
	Pods    coreinformers.PodInformer
	// Events is where it says what claims wait for.
	Events record.EventRecorder
	Log    *slog.Logger
}

// Controller binds claims and volumes. See the package's documentation.
type Controller struct {
	config  Config
	claims  kind[*corev1.PersistentVolumeClaim]
	volumes kind[*corev1.PersistentVolume]
	classes storagelisters.StorageClassLister
	pods    cache.SharedIndexInformer
	known   []cache.DoneChecker
	// passes are the classes all of whose claims without a volume are to be looked at.
	passes *queue.Queue[string]

	mu sync.Mutex
	// promised are volumes that claims are being bound to: no other claim gets them meanwhile.
	promised map[string]cache.ObjectName
	// passed is when the claims of a class were looked at last.
	passed map[string]time.Time
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{
		config:  config,
		claims:  kind[*corev1.PersistentVolumeClaim]{informer: config.Claims.Informer(), queue: queue.New[cache.ObjectName]()},
		volumes: kind[*corev1.PersistentVolume]{informer: config.Volumes.Informer(), queue: queue.New[cache.ObjectName]()},
		classes: config.Classes.Lister(), pods: config.Pods.Informer(), passes: queue.New[string](),
		promised: map[string]cache.ObjectName{}, passed: map[string]time.Time{},
	}
	indexErr := errors.Join(c.claims.informer.AddIndexers(claimIndexers()), storageindex.Volumes(c.volumes.informer), storageindex.Pods(c.pods))
	claims, claimsErr := c.claims.informer.AddEventHandler(each(c.claimChanged))
	volumes, volumesErr := c.volumes.informer.AddEventHandler(each(c.volumeChanged))
	classes, classesErr := config.Classes.Informer().AddEventHandler(each(func(class named) {
		c.pass(class.GetName())
		c.pass("") // it may be the default, for those that name none
	}))
	if err := errors.Join(indexErr, claimsErr, volumesErr, classesErr); err != nil {
		return nil, fmt.Errorf("watch volumes, claims, their classes and pods: %w", err)
	}
	c.known = []cache.DoneChecker{claims.HasSyncedChecker(), volumes.HasSyncedChecker(), classes.HasSyncedChecker(), c.pods.HasSyncedChecker()}
	return c, nil
}

// named is an object of any kind.
type named interface{ GetName() string }

// each tells of objects that come, change or go, as they are, or were last.
func each[T any](tell func(T)) cache.ResourceEventHandler {
	look := func(obj any) {
		if of, ok := informer.Last[T](obj); ok {
			tell(of)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }, DeleteFunc: look}
}

// claimChanged looks at a claim, and at the volumes at either end of an arrow to or from it.
func (c *Controller) claimChanged(claim *corev1.PersistentVolumeClaim) {
	name := cache.MetaObjectToName(claim)
	c.claims.queue.Add(name)
	if claim.Spec.VolumeName != "" {
		c.volumes.queue.Add(cache.ObjectName{Name: claim.Spec.VolumeName})
	}
	c.volumes.wake(storageindex.ByTaker, storageindex.HeldFor(name.Namespace, name.Name))
}

// volumeChanged looks at a volume, and at the claims that may want it.
func (c *Controller) volumeChanged(v *corev1.PersistentVolume) {
	c.volumes.queue.Add(cache.ObjectName{Name: v.Name})
	c.claims.wake(ofVolume, v.Name)
	if claim, ok := pointsAt(v); ok {
		c.claims.queue.Add(claim)
	} else if v.Status.Phase == corev1.VolumeAvailable && v.DeletionTimestamp == nil {
		c.pass(helpers.GetPersistentVolumeClass(v))
	}
}

// pass has all claims of a class that have no volume looked at: now, or when the time has come.
func (c *Controller) pass(class string) {
	c.mu.Lock()
	last, ok := c.passed[class]
	c.mu.Unlock()
	if !ok {
		c.passes.Add(class)
		return
	}
	c.passes.AddAfter(class, between-time.Since(last))
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error {
	cache.WaitFor(ctx, "", c.known...)
	var all sync.WaitGroup
	all.Go(func() {
		c.passes.Run(ctx, 1, func(_ context.Context, class string) error {
			c.mu.Lock()
			c.passed[class] = time.Now()
			c.mu.Unlock()
			c.claims.wake(unbound, class)
			return nil
		}, func(string, error) {})
	})
	all.Go(func() {
		c.volumes.queue.Run(ctx, workers, c.syncVolume, func(name cache.ObjectName, err error) {
			if !expected(err) {
				c.config.Log.Warn("a volume could not be looked after yet, trying again", "volume", name.Name, "error", err)
			}
		})
	})
	c.claims.queue.Run(ctx, workers, c.syncClaim, func(name cache.ObjectName, err error) {
		if !expected(err) {
			c.config.Log.Warn("a claim could not be looked after yet, trying again", "namespace", name.Namespace, "claim", name.Name, "error", err)
		}
	})
	all.Wait()
	return nil
}

// expected says of an error that it comes of others who are at work on the object.
func expected(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }
