package ephemeralvolume

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
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/storage/ephemeral"

	"monopod.dev/monopod/internal/controllers/storageindex"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/queue"
	"monopod.dev/monopod/internal/pods"
)

const (
	// workers is how many pods are worked on at a time.
	workers = 5
	// failpoints begins the names of the failpoints.
	failpoints = "controllers/ephemeralvolume"
	// failed is the reason of the event of a pod whose claim is not there, or is not its own.
	failed = "FailedBinding"
)

// Config is what a Controller needs.
type Config struct {
	Client kubernetes.Interface
	// Pods, of which an index is added, and Claims are watched by others, too; who made the controller starts them.
	Pods   coreinformers.PodInformer
	Claims coreinformers.PersistentVolumeClaimInformer
	Events record.EventRecorder
	Log    *slog.Logger
}

// Controller makes the claims that pods bring along.
type Controller struct {
	config Config
	pods   corelisters.PodLister
	claims corelisters.PersistentVolumeClaimLister
	queue  *queue.Queue[cache.ObjectName]
	known  []cache.DoneChecker
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{config: config, pods: config.Pods.Lister(), claims: config.Claims.Lister(), queue: queue.New[cache.ObjectName]()}
	if err := storageindex.Pods(config.Pods.Informer()); err != nil {
		return nil, fmt.Errorf("pods by their claims: %w", err)
	}
	// What a pod brings along never changes. But an update may be that of another pod of the name.
	known, err := config.Pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.look, UpdateFunc: func(old, obj any) {
			if was, ok := old.(*corev1.Pod); ok {
				if is, ok := obj.(*corev1.Pod); ok && is.UID != was.UID {
					c.look(obj)
				}
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	claims, err := config.Claims.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: c.gone})
	if err != nil {
		return nil, fmt.Errorf("watch claims: %w", err)
	}
	c.known = []cache.DoneChecker{known.HasSyncedChecker(), claims.HasSyncedChecker()}
	return c, nil
}

// look puts a pod in line that brings claims along.
func (c *Controller) look(obj any) {
	pod, ok := obj.(*corev1.Pod)
	if ok && slices.ContainsFunc(pods.Claims(pod), func(claim pods.ClaimName) bool { return claim.Own }) {
		c.queue.Add(cache.MetaObjectToName(pod))
	}
}

// gone puts the pods in line that lack a claim now, or have been in want of its name.
func (c *Controller) gone(obj any) {
	claim, ok := informer.Last[*corev1.PersistentVolumeClaim](obj)
	if !ok {
		return
	}
	for _, pod := range storageindex.PodsOf(c.config.Pods.Informer(), cache.MetaObjectToName(claim).AsNamespacedName()) {
		c.look(pod)
	}
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error {
	cache.WaitFor(ctx, "", c.known...)
	c.queue.Run(ctx, workers, c.sync, func(name cache.ObjectName, err error) {
		c.config.Log.Warn("a pod lacks a claim that it brings along, trying again", "namespace", name.Namespace, "pod", name.Name, "error", err)
	})
	return nil
}

func (c *Controller) sync(ctx context.Context, name cache.ObjectName) error {
	pod, err := c.pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	needs, wrong := Decide(pod, func(claim string) *corev1.PersistentVolumeClaim {
		there, err := c.claims.PersistentVolumeClaims(name.Namespace).Get(claim)
		if err != nil { // of a cache: it is not there
			return nil
		}
		return there
	})
	for _, need := range needs {
		if err := c.make(ctx, pod, need); err != nil {
			wrong = append(wrong, Wrong{need.Volume, err})
		}
	}
	var all []error
	for _, w := range wrong {
		c.config.Events.Event(pod, corev1.EventTypeWarning, failed, w.Error())
		all = append(all, w)
	}
	return errors.Join(all...)
}

// make makes a claim. One that is there, and that the cache does not show yet, is as good if it is the pod's.
func (c *Controller) make(ctx context.Context, pod *corev1.Pod, need Need) error {
	if err := failpoint.Hit(failpoints + "/make"); err != nil {
		return err
	}
	claims := c.config.Client.CoreV1().PersistentVolumeClaims(pod.Namespace)
	_, err := claims.Create(ctx, need.Claim, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		there, err := claims.Get(ctx, need.Claim.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("create PVC %s: %w", need.Claim.Name, err)
		}
		return ephemeral.VolumeIsForPod(pod, there)
	}
	if err != nil {
		return fmt.Errorf("create PVC %s: %w", need.Claim.Name, err)
	}
	return failpoint.Hit(failpoints + "/made")
}
