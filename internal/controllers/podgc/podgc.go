// Package podgc removes pods that nobody else ends: there is no agent that could.
//
//   - A pod whose node does not exist, and has not for 40 s, as when a node was deleted, or a pod names one that never was. It fails, with the condition
//     DisruptionTarget and the reason DeletionByPodGC.
//   - A pod that is deleted and has no node.
//   - A pod that is deleted, and whose node somebody has declared dead by the taint node.kubernetes.io/out-of-service, while it is not Ready.
//   - Of pods that have ended, the oldest, when there are more than 12,500.
//
// It is upstream's pod garbage collector in what it does, and in its words.
package podgc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/podsbynode"
	"monopod.dev/monopod/internal/controllers/queue"
)

const (
	// workers is how many pods are worked on at a time.
	workers = 4
	// quarantine is for how long a node has to be missing: an agent makes its Node anew when somebody has deleted it.
	quarantine = 40 * time.Second
	// keptEnded is how many pods that have ended are kept.
	keptEnded = 12500
)

// Config is what a Controller needs.
type Config struct {
	// Client has the right to get nodes, to patch pods/status and to delete pods.
	Client kubernetes.Interface
	// Nodes and Pods are watched by others, too; who made the Controller starts them.
	Nodes coreinformers.NodeInformer
	Pods  coreinformers.PodInformer
	// Patience is for how long a node has to be missing; 0: 40 s. Kept is how many pods that have ended are kept; 0: 12,500.
	Patience time.Duration
	Kept     int
	Log      *slog.Logger
}

// Controller removes pods. See the package's documentation.
type Controller struct {
	config Config
	pods   cache.SharedIndexInformer
	known  []cache.DoneChecker
	queue  *queue.Queue[item]

	mu sync.Mutex // guards what follows
	// missing is since when nodes are missing that pods name.
	missing map[string]time.Time
	ended   ended
}

// item is a pod; without a name it stands for all that have ended.
type item struct {
	types.NamespacedName
	uid types.UID
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{config: config, pods: config.Pods.Informer(), queue: queue.New[item](), missing: map[string]time.Time{}}
	c.config.Log = cmp.Or(config.Log, slog.New(slog.DiscardHandler))
	c.config.Patience = cmp.Or(config.Patience, quarantine)
	c.config.Kept = cmp.Or(config.Kept, keptEnded)
	indexed := podsbynode.Index(c.pods)
	changed, podsErr := c.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.podChanged(nil, obj.(*corev1.Pod)) },
		UpdateFunc: func(old, obj any) { c.podChanged(old.(*corev1.Pod), obj.(*corev1.Pod)) },
		DeleteFunc: c.podGone,
	})
	nodes, nodesErr := config.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.nodeChanged(obj.(*corev1.Node)) },
		UpdateFunc: func(_, obj any) { c.nodeChanged(obj.(*corev1.Node)) },
		DeleteFunc: c.nodeGone,
	})
	if err := errors.Join(indexed, podsErr, nodesErr); err != nil {
		return nil, fmt.Errorf("watch pods and nodes: %w", err)
	}
	c.known = []cache.DoneChecker{changed.HasSyncedChecker(), nodes.HasSyncedChecker()}
	return c, nil
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error {
	cache.WaitFor(ctx, "", c.known...)
	c.queue.Run(ctx, workers, c.sync, func(pod item, err error) {
		c.config.Log.Warn("a pod could not be removed yet, trying again", "namespace", pod.Namespace, "pod", pod.Name, "error", err)
	})
	return nil
}

// podChanged puts a pod in line if there can be anything to do about it. Nodes are looked at when the line is worked on: they may not be known yet.
func (c *Controller) podChanged(old, pod *corev1.Pod) {
	switch {
	case old == nil, old.UID != pod.UID, old.Spec.NodeName != pod.Spec.NodeName, old.DeletionTimestamp == nil && pod.DeletionTimestamp != nil:
		c.lookAt(pod)
	}
	c.mu.Lock()
	if old != nil && old.UID != pod.UID {
		c.ended.forget(old.UID)
	}
	tooMany := c.ended.see(pod) && len(c.ended.oldest) > c.config.Kept
	c.mu.Unlock()
	if tooMany {
		c.queue.Add(item{})
	}
}

// podGone forgets a missing node with the last pod that names it.
func (c *Controller) podGone(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	c.mu.Lock()
	c.ended.forget(pod.UID)
	c.mu.Unlock()
	if others, err := podsbynode.Pods(c.pods, pod.Spec.NodeName); err == nil && len(others) == 0 {
		c.mu.Lock()
		delete(c.missing, pod.Spec.NodeName)
		c.mu.Unlock()
	}
}

func (c *Controller) lookAt(pod *corev1.Pod) {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		c.queue.Add(item{types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID})
	}
}

func (c *Controller) nodeChanged(node *corev1.Node) {
	c.mu.Lock()
	delete(c.missing, node.Name)
	c.mu.Unlock()
	if isOutOfService(node) {
		c.lookAtNode(node.Name)
	}
}

func (c *Controller) nodeGone(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	if node, ok := obj.(*corev1.Node); ok {
		c.lookAtNode(node.Name)
	}
}

func (c *Controller) lookAtNode(name string) {
	all, err := podsbynode.Pods(c.pods, name)
	if err != nil {
		c.config.Log.Error("pods of a node are not found", "node", name, "error", err)
		return
	}
	for _, pod := range all {
		c.lookAt(pod)
	}
}

// sync does what is to be done about a pod.
func (c *Controller) sync(ctx context.Context, pod item) error {
	if pod.Name == "" {
		return c.removeOldest(ctx)
	}
	obj, found, err := c.pods.GetStore().GetByKey(pod.String())
	if err != nil {
		return err
	}
	current, ok := obj.(*corev1.Pod)
	if !found || !ok || current.UID != pod.uid {
		return nil
	}
	node, since, err := c.nodeOf(current)
	if err != nil {
		return err
	}
	why, again := decide(current, node, since, time.Now(), c.config.Patience)
	if again > 0 {
		c.queue.AddAfter(pod, again)
	}
	if why == "" {
		return nil
	}
	if why == orphaned {
		// The informer may be behind.
		_, err := c.config.Client.CoreV1().Nodes().Get(ctx, current.Spec.NodeName, metav1.GetOptions{})
		if err == nil {
			return nil
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("node %s: %w", current.Spec.NodeName, err)
		}
	}
	return c.remove(ctx, current, why)
}

// nodeOf is the node of a pod; nil: there is none, which has been so since then.
func (c *Controller) nodeOf(pod *corev1.Pod) (node *corev1.Node, since time.Time, err error) {
	if pod.Spec.NodeName == "" {
		return nil, since, nil
	}
	// Under the lock, so that a node that comes now is not noted as missing afterwards.
	c.mu.Lock()
	defer c.mu.Unlock()
	node, err = c.config.Nodes.Lister().Get(pod.Spec.NodeName)
	if !apierrors.IsNotFound(err) {
		return node, since, err
	}
	if _, has := c.missing[pod.Spec.NodeName]; !has {
		c.missing[pod.Spec.NodeName] = time.Now()
	}
	return nil, c.missing[pod.Spec.NodeName], nil
}

// remove fails a pod that has not ended, so that whoever waits for it knows, and removes it.
func (c *Controller) remove(ctx context.Context, pod *corev1.Pod, why cause) error {
	all := c.config.Client.CoreV1().Pods(pod.Namespace)
	if st, changed := mark(pod, why, time.Now()); changed {
		status := map[string]any{"phase": st.Phase}
		if why == orphaned {
			status["conditions"] = []any{condition(st)}
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
		if err != nil {
			return err
		}
		_, err = all.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		switch {
		case err != nil && owned.Gone(ctx, c.config.Client, pod, err):
			return nil
		case err != nil:
			return fmt.Errorf("fail it: %w", err)
		}
	}
	at, now := metav1.NewUIDPreconditions(string(pod.UID)), int64(0)
	err := all.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: at, GracePeriodSeconds: &now})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	c.config.Log.Info("pod removed", "namespace", pod.Namespace, "pod", pod.Name, "node", pod.Spec.NodeName, "why", string(why))
	return nil
}

// removeOldest removes the oldest of those that have ended, as far as they are too many.
func (c *Controller) removeOldest(ctx context.Context) error {
	c.mu.Lock()
	oldest := c.ended.beyond(c.config.Kept)
	c.mu.Unlock()
	var errs []error
	for _, one := range oldest {
		obj, found, err := c.pods.GetStore().GetByKey(one.String())
		pod, ok := obj.(*corev1.Pod)
		if err == nil && (!found || !ok || pod.UID != one.uid || pod.DeletionTimestamp != nil) {
			continue
		}
		if err == nil {
			err = c.remove(ctx, pod, "too many have ended")
		}
		if err != nil {
			errs = append(errs, err)
			c.mu.Lock()
			if ok {
				c.ended.see(pod)
			}
			c.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}
