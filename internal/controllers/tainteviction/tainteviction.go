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
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/controllers/podsbynode"
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
	loop   *podsbynode.Loop

	mu sync.Mutex // guards what follows
	// since is when a pod that may stay for a time was first seen with such taints.
	since map[types.UID]time.Time
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{config: config, since: map[types.UID]time.Time{}}
	c.config.Log = cmp.Or(config.Log, slog.New(slog.DiscardHandler))
	c.loop = podsbynode.New(podsbynode.Config{
		Pods: config.Pods, PodChanged: c.podChanged, PodGone: func(pod *corev1.Pod) { c.forget(pod.UID) }, Nodes: config.Nodes, NodeChanged: c.nodeChanged,
		Workers: workers, Sync: c.sync, Log: c.config.Log,
	})
	return c, c.loop.Follow()
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

func (c *Controller) podChanged(old, pod *corev1.Pod) {
	if old == nil || old.Spec.NodeName != pod.Spec.NodeName || !apiequality.Semantic.DeepEqual(old.Spec.Tolerations, pod.Spec.Tolerations) {
		c.lookAt(pod)
	}
}

// lookAt puts a pod in line if there can be anything to do about it: most nodes have no such taints.
func (c *Controller) lookAt(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
		return
	}
	node, err := c.config.Nodes.Lister().Get(pod.Spec.NodeName)
	if err == nil && (evicts(node) || c.waits(pod.UID)) {
		c.loop.Look(podsbynode.Of(pod))
	}
}

func (c *Controller) nodeChanged(old, node *corev1.Node) {
	// Most changes of a node are heartbeats.
	if old == nil && !evicts(node) || old != nil && apiequality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) {
		return
	}
	c.loop.Each(node.Name, c.lookAt)
}

// sync does what is to be done about a pod.
func (c *Controller) sync(ctx context.Context, which podsbynode.Pod, pod *corev1.Pod) (again time.Duration, err error) {
	if pod == nil || pod.DeletionTimestamp != nil {
		c.forget(which.UID)
		return 0, nil
	}
	node, err := c.config.Nodes.Lister().Get(pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		c.forget(pod.UID)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	stays, bounded := tolerance(pod.Spec.Tolerations, node.Spec.Taints)
	if !bounded {
		if c.forget(pod.UID) {
			c.config.Events.Event(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Cancelling deletion of Pod "+which.String())
		}
		return 0, nil
	}
	if left := time.Until(c.begin(pod.UID).Add(stays)); stays > 0 && left > 0 {
		return left, nil
	}
	return 0, c.evict(ctx, pod)
}

// evict deletes a pod. That it has its condition first tells whoever owns it that the pod did not fail.
func (c *Controller) evict(ctx context.Context, pod *corev1.Pod) error {
	st := pod.Status.DeepCopy()
	pods.SetCondition(st, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation,
		Reason: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint",
	}, time.Now())
	c.config.Events.Event(pod, corev1.EventTypeNormal, "TaintManagerEviction", fmt.Sprintf("Marking for deletion Pod %s/%s", pod.Namespace, pod.Name))
	status := map[string]any{"conditions": []*corev1.PodCondition{pods.Condition(st, corev1.DisruptionTarget)}}
	deleted, err := podsbynode.Delete(ctx, c.config.Client, pod, status, metav1.DeleteOptions{})
	if err != nil || !deleted {
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
