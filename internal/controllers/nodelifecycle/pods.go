package nodelifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/podsbynode"
	"monopod.dev/monopod/internal/pods"
)

// tellPods takes the condition Ready from the pods of a node that is not ready, so that nobody sends them work. The agent gives it back.
func (c *Controller) tellPods(ctx context.Context, r *vitals, node *corev1.Node) error {
	ready := condition(&node.Status, corev1.NodeReady)
	if ready == nil || ready.Status == corev1.ConditionTrue {
		r.told = nil
		c.nodes.setDown(node.Name, false)
		return nil
	}
	if r.told == nil {
		r.told = map[types.UID]bool{}
	}
	// From here on pods that get ready are told of: none falls between this and the list.
	c.nodes.setDown(node.Name, true)
	all, err := podsbynode.Pods(c.pods, node.Name)
	if err != nil {
		return err
	}
	var errs []error
	for _, pod := range all {
		if r.told[pod.UID] || !pods.IsTrue(&pod.Status, corev1.PodReady) {
			continue
		}
		switch err := c.notReady(ctx, pod); {
		case err != nil && owned.Gone(ctx, c.config.Client, pod, err):
		case err != nil:
			errs = append(errs, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err))
			continue
		default:
			c.config.Events.Event(pod, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
		}
		r.told[pod.UID] = true
	}
	return errors.Join(errs...)
}

func (c *Controller) notReady(ctx context.Context, pod *corev1.Pod) error {
	st := pod.Status.DeepCopy()
	pods.SetCondition(st, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, ObservedGeneration: pod.Generation}, c.clock.Now())
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"conditions": []*corev1.PodCondition{pods.Condition(st, corev1.PodReady)}},
	})
	if err != nil {
		return err
	}
	_, err = c.config.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
