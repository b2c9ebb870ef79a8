package volumeprotection

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/storageindex"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/queue"
	"monopod.dev/monopod/internal/pods"
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
	pods   cache.SharedIndexInformer
	queue  *queue.Queue[cache.ObjectName]
	known  []cache.DoneChecker
	// sweeps are the namespaces in which claims may go.
	sweeps *queue.Queue[string]

	mu sync.Mutex
	// going are these claims, by their namespaces.
	going map[string]map[string]bool
}

// NewClaims returns a controller that does nothing until it is run.
func NewClaims(config ClaimsConfig) (*Claims, error) {
	c := &Claims{
		config: config, claims: config.Claims.Lister(), pods: config.Pods.Informer(), queue: queue.New[cache.ObjectName](),
		sweeps: queue.New[string](), going: map[string]map[string]bool{},
	}
	if err := storageindex.Pods(c.pods); err != nil {
		return nil, fmt.Errorf("pods by their claims: %w", err)
	}
	claims, err := config.Claims.Informer().AddEventHandler(owned.Each(c.queue.Add))
	if err != nil {
		return nil, fmt.Errorf("watch claims: %w", err)
	}
	known, err := c.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.pod, UpdateFunc: func(old, obj any) { c.pod(old); c.pod(obj) }, DeleteFunc: c.pod, // an update may be that of another pod of the name
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	c.known = []cache.DoneChecker{claims.HasSyncedChecker(), known.HasSyncedChecker()}
	return c, nil
}

// pod puts the claims of a pod in line.
func (c *Claims) pod(obj any) {
	p, ok := informer.Last[*corev1.Pod](obj)
	if !ok {
		return
	}
	for _, claim := range pods.Claims(p) {
		c.queue.Add(cache.NewObjectName(claim.Namespace, claim.Name))
	}
}

// Run works until ctx ends, which is no error. A controller is run once.
func (c *Claims) Run(ctx context.Context) error {
	cache.WaitFor(ctx, "", c.known...)
	var sweeps sync.WaitGroup
	defer sweeps.Wait()
	sweeps.Go(func() {
		c.sweeps.Run(ctx, workers, c.sweep, func(namespace string, err error) {
			if !apierrors.IsConflict(err) {
				c.config.Log.Warn("claims that are deleted are not let go of, trying again", "namespace", namespace, "error", err)
			}
		})
	})
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
	all := storageindex.PodsOf(c.pods, name.AsNamespacedName())
	if condition, changed := Unused(claim, all, metav1.Now()); changed {
		return c.tell(ctx, claim, condition) // which brings it here again
	}
	switch verb := Claim(claim, all); verb {
	case Protect:
		return c.write(ctx, claim, verb)
	case Release:
		c.goes(name)
		c.sweeps.Add(name.Namespace)
	}
	return nil
}

// goes notes that claims may go, if the store shows nobody either who has them: the next sweep of their namespace looks.
func (c *Claims) goes(names ...cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if c.going[name.Namespace] == nil {
			c.going[name.Namespace] = map[string]bool{}
		}
		c.going[name.Namespace][name.Name] = true
	}
}

// taken are the claims of a namespace that may go; they are forgotten.
func (c *Claims) taken(namespace string) (names []cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.going[namespace] {
		names = append(names, cache.NewObjectName(namespace, name))
	}
	delete(c.going, namespace)
	return names
}

// sweep lets go of the claims of a namespace that nobody has. The pods are those of the store, and are listed once for all claims that go together: after each of
// these was seen to be deleted, from when on no pod begins to use it.
func (c *Claims) sweep(ctx context.Context, namespace string) error {
	names := c.taken(namespace)
	if len(names) == 0 {
		return nil
	}
	list, err := c.config.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.goes(names...)
		return fmt.Errorf("list the pods of the namespace: %w", err)
	}
	by := map[types.NamespacedName][]*corev1.Pod{}
	for i := range list.Items {
		for _, claim := range pods.Claims(&list.Items[i]) {
			by[claim.NamespacedName] = append(by[claim.NamespacedName], &list.Items[i])
		}
	}
	return owned.AtOnce(len(names), func(i int) error {
		claim, err := c.claims.PersistentVolumeClaims(namespace).Get(names[i].Name)
		if err == nil && Claim(claim, by[names[i].AsNamespacedName()]) == Release {
			err = c.write(ctx, claim, Release)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			c.goes(names[i])
			return fmt.Errorf("claim %s: %w", names[i].Name, err)
		}
		return nil
	})
}

func (c *Claims) write(ctx context.Context, claim *corev1.PersistentVolumeClaim, verb Verb) error {
	if err := failpoint.Hit("controllers/volumeprotection/claim"); err != nil {
		return err
	}
	now := claim.DeepCopy()
	now.Finalizers = verb.finalizers(now.Finalizers, ClaimFinalizer)
	_, err := c.config.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, now, metav1.UpdateOptions{})
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
