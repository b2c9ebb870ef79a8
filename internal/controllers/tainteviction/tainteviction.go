// Package tainteviction deletes pods from nodes that have a taint with the effect NoExecute which they do not tolerate.
//
// A pod that tolerates all such taints of its node stays: for ever, or as long as the shortest tolerationSeconds of the tolerations that it needs says.
// That time begins when the controller first sees the pod with these taints, and anew when it was away: nobody is deleted too early. It is called
// off when the taints go, or when somebody adds a toleration.
//
// Who is deleted gets the condition DisruptionTarget first, with the reason DeletionByTaintManager. A pod whose agent is dead stays, with its
// deletionTimestamp, until the agent is back and has ended it.
package tainteviction

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
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/podsbynode"
	"monopod.dev/monopod/internal/controllers/queue"
	"monopod.dev/monopod/internal/pods"
)

// workers is how many pods are worked on at a time.
const workers = 4

// Config is what a Controller needs.
type Config struct {
	// Client has the right to patch pods/status and to delete pods.
	Client kubernetes.Interface
	// Nodes and Pods are watched by others, too; who made the Controller starts them.
	Nodes coreinformers.NodeInformer
	Pods  coreinformers.PodInformer
	// Events is where it says whom it deletes.
	Events record.EventRecorder
	Log    *slog.Logger
}

// Controller deletes pods that do not tolerate their node. See the package's documentation.
type Controller struct {
	config Config
	pods   cache.SharedIndexInformer
	known  []cache.DoneChecker
	queue  *queue.Queue[item]

	mu sync.Mutex // guards what follows
	// since is when a pod that may stay for a time was first seen with such taints.
	since map[types.UID]time.Time
}

// item is a pod.
type item struct {
	types.NamespacedName
	uid types.UID
}

func itemOf(pod *corev1.Pod) item {
	return item{types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID}
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{config: config, pods: config.Pods.Informer(), queue: queue.New[item](), since: map[types.UID]time.Time{}}
	c.config.Log = cmp.Or(config.Log, slog.New(slog.DiscardHandler))
	changed, podsErr := c.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.podChanged(nil, obj.(*corev1.Pod)) },
		UpdateFunc: func(old, obj any) { c.podChanged(old.(*corev1.Pod), obj.(*corev1.Pod)) },
		DeleteFunc: c.podGone,
	})
	nodes, nodesErr := config.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.nodeChanged(nil, obj.(*corev1.Node)) },
		UpdateFunc: func(old, obj any) { c.nodeChanged(old.(*corev1.Node), obj.(*corev1.Node)) },
	})
	if err := errors.Join(podsErr, nodesErr, podsbynode.Index(c.pods)); err != nil {
		return nil, fmt.Errorf("watch pods and nodes: %w", err)
	}
	c.known = []cache.DoneChecker{changed.HasSyncedChecker(), nodes.HasSyncedChecker()}
	return c, nil
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error {
	cache.WaitFor(ctx, "", c.known...)
	c.queue.Run(ctx, workers, c.sync, func(pod item, err error) {
		c.config.Log.Warn("a pod could not be deleted from a tainted node yet, trying again", "namespace", pod.Namespace, "pod", pod.Name, "error", err)
	})
	return nil
}

func (c *Controller) podChanged(old, pod *corev1.Pod) {
	if old != nil && old.UID != pod.UID { // deleted and made again under the same name between two looks
		c.podGone(old)
		old = nil
	}
	if old == nil || old.Spec.NodeName != pod.Spec.NodeName || !apiequality.Semantic.DeepEqual(old.Spec.Tolerations, pod.Spec.Tolerations) {
		c.lookAt(pod)
	}
}

func (c *Controller) podGone(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	if pod, ok := obj.(*corev1.Pod); ok {
		c.forget(pod.UID)
	}
}

// lookAt puts a pod in line if there can be anything to do about it: most nodes have no such taints.
func (c *Controller) lookAt(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
		return
	}
	node, err := c.config.Nodes.Lister().Get(pod.Spec.NodeName)
	if err == nil && (evicts(node) || c.waits(pod.UID)) {
		c.queue.Add(itemOf(pod))
	}
}

func (c *Controller) nodeChanged(old, node *corev1.Node) {
	// Most changes of a node are heartbeats.
	if old == nil && !evicts(node) || old != nil && apiequality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) {
		return
	}
	all, err := podsbynode.Pods(c.pods, node.Name)
	if err != nil {
		c.config.Log.Error("pods of a tainted node are not found", "node", node.Name, "error", err)
		return
	}
	for _, pod := range all {
		c.lookAt(pod)
	}
}

// sync does what is to be done about a pod.
func (c *Controller) sync(ctx context.Context, pod item) error {
	obj, found, err := c.pods.GetStore().GetByKey(pod.String())
	if err != nil {
		return err
	}
	current, ok := obj.(*corev1.Pod)
	if !found || !ok || current.UID != pod.uid || current.DeletionTimestamp != nil {
		c.forget(pod.uid)
		return nil
	}
	node, err := c.config.Nodes.Lister().Get(current.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		c.forget(pod.uid)
		return nil
	}
	if err != nil {
		return err
	}
	stays, bounded := tolerance(current.Spec.Tolerations, node.Spec.Taints)
	if !bounded {
		if c.forget(pod.uid) {
			c.config.Events.Event(current, corev1.EventTypeNormal, "TaintManagerEviction", "Cancelling deletion of Pod "+pod.String())
		}
		return nil
	}
	if left := time.Until(c.begin(pod.uid).Add(stays)); stays > 0 && left > 0 {
		c.queue.AddAfter(pod, left)
		return nil
	}
	return c.evict(ctx, current)
}

// evict deletes a pod. That it has its condition first tells whoever owns it that the pod did not fail.
func (c *Controller) evict(ctx context.Context, pod *corev1.Pod) error {
	st := pod.Status.DeepCopy()
	pods.SetCondition(st, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation,
		Reason: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint",
	}, time.Now())
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"conditions": []*corev1.PodCondition{pods.Condition(st, corev1.DisruptionTarget)}},
	})
	if err != nil {
		return err
	}
	c.config.Events.Event(pod, corev1.EventTypeNormal, "TaintManagerEviction", fmt.Sprintf("Marking for deletion Pod %s/%s", pod.Namespace, pod.Name))
	all := c.config.Client.CoreV1().Pods(pod.Namespace)
	if _, err := all.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		if owned.Gone(ctx, c.config.Client, pod, err) {
			return nil
		}
		return fmt.Errorf("condition %s: %w", corev1.DisruptionTarget, err)
	}
	err = all.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	c.forget(pod.UID)
	c.config.Log.Info("pod deleted from a tainted node", "namespace", pod.Namespace, "pod", pod.Name, "node", pod.Spec.NodeName)
	return nil
}

// begin is when the time of a pod began, which is now where it had not.
func (c *Controller) begin(pod types.UID) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, has := c.since[pod]; !has {
		c.since[pod] = time.Now()
	}
	return c.since[pod]
}

func (c *Controller) waits(pod types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, has := c.since[pod]
	return has
}

// forget reports whether a time had begun.
func (c *Controller) forget(pod types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, has := c.since[pod]
	delete(c.since, pod)
	return has
}
