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
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"

	"monopod.dev/monopod/internal/controllers/podsbynode"
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
	loop   *podsbynode.Loop

	mu sync.Mutex // guards what follows
	// missing is since when nodes are missing that pods name.
	missing map[string]time.Time
	ended   ended
}

// theEnded stands for all that have ended.
var theEnded = podsbynode.Pod{}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{config: config, missing: map[string]time.Time{}}
	c.config.Log = cmp.Or(config.Log, slog.New(slog.DiscardHandler))
	c.config.Patience = cmp.Or(config.Patience, quarantine)
	c.config.Kept = cmp.Or(config.Kept, keptEnded)
	c.loop = podsbynode.New(podsbynode.Config{
		Pods: config.Pods, PodChanged: c.podChanged, PodGone: c.podGone, Nodes: config.Nodes, NodeChanged: c.nodeChanged, NodeGone: c.nodeGone,
		Workers: workers, Sync: c.sync, Log: c.config.Log,
	})
	return c, c.loop.Follow()
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// podChanged puts a pod in line if there can be anything to do about it. Nodes are looked at when the line is worked on: they may not be known yet.
func (c *Controller) podChanged(old, pod *corev1.Pod) {
	switch {
	case old == nil, old.Spec.NodeName != pod.Spec.NodeName, old.DeletionTimestamp == nil && pod.DeletionTimestamp != nil:
		c.lookAt(pod)
	}
	c.mu.Lock()
	tooMany := c.ended.see(pod) && len(c.ended.oldest) > c.config.Kept
	c.mu.Unlock()
	if tooMany {
		c.loop.Look(theEnded)
	}
}

// podGone forgets a missing node with the last pod that names it.
func (c *Controller) podGone(pod *corev1.Pod) {
	named := false
	c.loop.Each(pod.Spec.NodeName, func(*corev1.Pod) { named = true })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended.forget(pod.UID)
	if !named {
		delete(c.missing, pod.Spec.NodeName)
	}
}

func (c *Controller) lookAt(pod *corev1.Pod) {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		c.loop.Look(podsbynode.Of(pod))
	}
}

func (c *Controller) nodeChanged(_, node *corev1.Node) {
	c.mu.Lock()
	delete(c.missing, node.Name)
	c.mu.Unlock()
	if isOutOfService(node) {
		c.loop.Each(node.Name, c.lookAt)
	}
}

func (c *Controller) nodeGone(node *corev1.Node) { c.loop.Each(node.Name, c.lookAt) }

// sync does what is to be done about a pod.
func (c *Controller) sync(ctx context.Context, which podsbynode.Pod, pod *corev1.Pod) (again time.Duration, err error) {
	switch {
	case which == theEnded:
		return 0, c.removeOldest(ctx)
	case pod == nil:
		return 0, nil
	}
	node, since, err := c.nodeOf(pod)
	if err != nil {
		return 0, err
	}
	why, again := decide(pod, node, since, time.Now(), c.config.Patience)
	if why == "" {
		return again, nil
	}
	if why == orphaned {
		// The informer may be behind.
		_, err := c.config.Client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
		if err == nil {
			return again, nil
		}
		if !apierrors.IsNotFound(err) {
			return again, fmt.Errorf("node %s: %w", pod.Spec.NodeName, err)
		}
	}
	return again, c.remove(ctx, pod, why)
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
	var status map[string]any
	if st, changed := mark(pod, why, time.Now()); changed {
		status = map[string]any{"phase": st.Phase}
		if why == orphaned {
			status["conditions"] = []any{condition(st)}
		}
	}
	deleted, err := podsbynode.Delete(ctx, c.config.Client, pod, status, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	if err != nil || !deleted {
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
		pod, err := c.loop.Find(one)
		if err == nil && (pod == nil || pod.DeletionTimestamp != nil) {
			continue
		}
		if err == nil {
			err = c.remove(ctx, pod, "too many have ended")
		}
		if err != nil {
			errs = append(errs, err)
			c.mu.Lock()
			if pod != nil {
				c.ended.see(pod)
			}
			c.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}
