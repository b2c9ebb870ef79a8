package volumeprotection

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/ephemeral"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/queue"
)

// workers is how many claims, or volumes, are worked on at a time.
const workers = 5

// ClaimsConfig is what Claims needs.
type ClaimsConfig struct {
	Client kubernetes.Interface
	// Claims and Pods are watched by others, too; who made the controller starts them.
	Claims coreinformers.PersistentVolumeClaimInformer
	Pods   coreinformers.PodInformer
	Log    *slog.Logger
}

// Claims is the controller that keeps claims while pods have them, and tells of each whether one does.
type Claims struct {
	config ClaimsConfig
	claims corelisters.PersistentVolumeClaimLister
	pods   corelisters.PodLister
	queue  *queue.Queue[cache.ObjectName]
	known  []cache.DoneChecker
}

// NewClaims returns a controller that does nothing until it is run.
func NewClaims(config ClaimsConfig) (*Claims, error) {
	c := &Claims{config: config, claims: config.Claims.Lister(), pods: config.Pods.Lister(), queue: queue.New[cache.ObjectName]()}
	claims, err := config.Claims.Informer().AddEventHandler(owned.Each(c.queue.Add))
	if err != nil {
		return nil, fmt.Errorf("watch claims: %w", err)
	}
	pods, err := config.Pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.pod, UpdateFunc: func(old, obj any) { c.pod(old); c.pod(obj) }, DeleteFunc: c.pod, // an update may be that of another pod of the name
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	c.known = []cache.DoneChecker{claims.HasSyncedChecker(), pods.HasSyncedChecker()}
	return c, nil
}

// pod puts the claims of a pod in line.
func (c *Claims) pod(obj any) {
	p, ok := informer.Last[*corev1.Pod](obj)
	if !ok {
		return
	}
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			c.queue.Add(cache.NewObjectName(p.Namespace, v.PersistentVolumeClaim.ClaimName))
		case v.Ephemeral != nil:
			c.queue.Add(cache.NewObjectName(p.Namespace, ephemeral.VolumeClaimName(p, v)))
		}
	}
}

// Run works until ctx ends, which is no error. A controller is run once.
func (c *Claims) Run(ctx context.Context) error {
	cache.WaitFor(ctx, "", c.known...)
	c.queue.Run(ctx, workers, c.sync, func(name cache.ObjectName, err error) {
		if !apierrors.IsConflict(err) {
			c.config.Log.Warn("whether a claim is in use is not told, trying again", "namespace", name.Namespace, "claim", name.Name, "error", err)
		}
	})
	return nil
}

func (c *Claims) sync(ctx context.Context, name cache.ObjectName) error {
	claim, err := c.claims.PersistentVolumeClaims(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	all, err := c.pods.Pods(name.Namespace).List(labels.Everything())
	if err != nil {
		return err
	}
	if condition, changed := Unused(claim, all, metav1.Now()); changed {
		return c.tell(ctx, claim, condition) // which brings it here again
	}
	verb := Claim(claim, all)
	if verb == Release {
		list, err := c.config.Client.CoreV1().Pods(name.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list the pods of the namespace: %w", err)
		}
		all = all[:0:0]
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
		verb = Claim(claim, all)
	}
	if verb == Leave {
		return nil
	}
	if err := failpoint.Hit("controllers/volumeprotection/claim"); err != nil {
		return err
	}
	now := claim.DeepCopy()
	now.Finalizers = verb.finalizers(now.Finalizers, ClaimFinalizer)
	_, err = c.config.Client.CoreV1().PersistentVolumeClaims(name.Namespace).Update(ctx, now, metav1.UpdateOptions{})
	return written(err)
}

func (c *Claims) tell(ctx context.Context, claim *corev1.PersistentVolumeClaim, condition corev1.PersistentVolumeClaimCondition) error {
	now := claim.DeepCopy()
	all := slices.DeleteFunc(now.Status.Conditions, func(o corev1.PersistentVolumeClaimCondition) bool { return o.Type == condition.Type })
	now.Status.Conditions = append(all, condition)
	_, err := c.config.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, now, metav1.UpdateOptions{})
	return written(err)
}

// finalizers are those of an object once the verb is done.
func (v Verb) finalizers(had []string, one string) []string {
	if v == Protect {
		return append(had, one)
	}
	return slices.DeleteFunc(had, func(o string) bool { return o == one })
}

// written is the error of a write; that the object is gone is none.
func written(err error) error {
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write it: %w", err)
	}
	return nil
}
