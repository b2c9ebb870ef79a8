package volumeprotection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/kubernetes"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/queue"
)

// AttributesConfig is what Attributes needs.
type AttributesConfig struct {
	Client kubernetes.Interface
	// These are watched by others, too; who made the controller starts them.
	Classes storageinformers.VolumeAttributesClassInformer
	Claims  coreinformers.PersistentVolumeClaimInformer
	Volumes coreinformers.PersistentVolumeInformer
	Log     *slog.Logger
}

// Attributes is the controller that keeps classes of volumes' attributes while volumes or claims name them.
type Attributes struct {
	config          AttributesConfig
	classes         storagelisters.VolumeAttributesClassLister
	claims, volumes cache.SharedIndexInformer
	queue           *queue.Queue[cache.ObjectName]
	known           []cache.DoneChecker
}

// byAttributes is the index of volumes and claims by the classes of attributes that they name.
const byAttributes = "monopod.dev/by-attributes"

// NewAttributes returns a controller that does nothing until it is run.
func NewAttributes(config AttributesConfig) (*Attributes, error) {
	c := &Attributes{
		config: config, classes: config.Classes.Lister(), claims: config.Claims.Informer(), volumes: config.Volumes.Informer(), queue: queue.New[cache.ObjectName](),
	}
	index := cache.Indexers{byAttributes: func(obj any) ([]string, error) { return attributesOf(obj), nil }}
	indexErr := errors.Join(c.claims.AddIndexers(index), c.volumes.AddIndexers(index))
	// Who names a class is looked at when it names it no longer.
	let := func(obj any) {
		last, _ := informer.Last[any](obj)
		for _, class := range attributesOf(last) {
			c.queue.Add(cache.ObjectName{Name: class})
		}
	}
	lets := cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, _ any) { let(old) }, DeleteFunc: let}
	classes, classesErr := config.Classes.Informer().AddEventHandler(owned.Each(c.queue.Add))
	claims, claimsErr := c.claims.AddEventHandler(lets)
	volumes, volumesErr := c.volumes.AddEventHandler(lets)
	if err := errors.Join(indexErr, classesErr, claimsErr, volumesErr); err != nil {
		return nil, fmt.Errorf("watch classes of attributes, volumes and claims: %w", err)
	}
	c.known = []cache.DoneChecker{classes.HasSyncedChecker(), claims.HasSyncedChecker(), volumes.HasSyncedChecker()}
	return c, nil
}

// attributesOf are the classes of attributes that a volume or a claim names.
func attributesOf(obj any) (classes []string) {
	add := func(name *string) {
		if name != nil && *name != "" && !slices.Contains(classes, *name) {
			classes = append(classes, *name)
		}
	}
	switch o := obj.(type) {
	case *corev1.PersistentVolume:
		add(o.Spec.VolumeAttributesClassName)
	case *corev1.PersistentVolumeClaim:
		add(o.Spec.VolumeAttributesClassName)
		add(o.Status.CurrentVolumeAttributesClassName)
		if m := o.Status.ModifyVolumeStatus; m != nil {
			add(&m.TargetVolumeAttributesClassName)
		}
	}
	return classes
}

// Run works until ctx ends, which is no error. A controller is run once.
func (c *Attributes) Run(ctx context.Context) error {
	cache.WaitFor(ctx, "", c.known...)
	c.queue.Run(ctx, 1, c.sync, func(name cache.ObjectName, err error) {
		if !apierrors.IsConflict(err) {
			c.config.Log.Warn("a class of attributes that is deleted is not let go of, trying again", "class", name.Name, "error", err)
		}
	})
	return nil
}

func (c *Attributes) sync(ctx context.Context, name cache.ObjectName) error {
	class, err := c.classes.Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	verb := ofAttributes(&class.ObjectMeta, c.seen(name.Name))
	if verb == Release {
		used, err := c.used(ctx, name.Name)
		if err != nil {
			return err
		}
		verb = ofAttributes(&class.ObjectMeta, used)
	}
	if verb == Leave {
		return nil
	}
	if err := failpoint.Hit("controllers/volumeprotection/attributes"); err != nil {
		return err
	}
	now := class.DeepCopy()
	now.Finalizers = verb.finalizers(now.Finalizers, AttributesFinalizer)
	_, err = c.config.Client.StorageV1().VolumeAttributesClasses().Update(ctx, now, metav1.UpdateOptions{})
	return written(err)
}

// seen says whether the caches show somebody who names a class.
func (c *Attributes) seen(class string) bool {
	for _, informer := range []cache.SharedIndexInformer{c.claims, c.volumes} {
		if keys, _ := informer.GetIndexer().IndexKeys(byAttributes, class); len(keys) > 0 { // the error is that there is no such index
			return true
		}
	}
	return false
}

// used says whether somebody names a class, as it is in the store.
func (c *Attributes) used(ctx context.Context, class string) (bool, error) {
	claims, err := c.config.Client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list the claims: %w", err)
	}
	volumes, err := c.config.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list the volumes: %w", err)
	}
	return slices.ContainsFunc(claims.Items, func(o corev1.PersistentVolumeClaim) bool { return slices.Contains(attributesOf(&o), class) }) ||
		slices.ContainsFunc(volumes.Items, func(o corev1.PersistentVolume) bool { return slices.Contains(attributesOf(&o), class) }), nil
}
