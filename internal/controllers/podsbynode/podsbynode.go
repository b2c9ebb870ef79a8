// Package podsbynode finds the pods of a node among those that an informer knows, and is the loop of controllers that delete pods for what becomes of their nodes.
package podsbynode

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// byNode is the index of pods by the node that they are bound to; pods without one are not in it.
const byNode = "monopod.dev/by-node"

// Index has pods found by their node. An informer may be given to it more than once, also when it runs already, but not by two callers at a time.
func Index(pods cache.SharedIndexInformer) error {
	if _, has := pods.GetIndexer().GetIndexers()[byNode]; has {
		return nil
	}
	err := pods.AddIndexers(cache.Indexers{byNode: func(obj any) ([]string, error) {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			return []string{pod.Spec.NodeName}, nil
		}
		return nil, nil
	}})
	if err != nil {
		return fmt.Errorf("index pods by their node: %w", err)
	}
	return nil
}

// Pods are the pods of a node, also those that have ended. They are the informer's: who changes one copies it.
func Pods(pods cache.SharedIndexInformer, node string) ([]*corev1.Pod, error) {
	objs, err := pods.GetIndexer().ByIndex(byNode, node)
	if err != nil {
		return nil, fmt.Errorf("pods of node %s: %w", node, err)
	}
	all := make([]*corev1.Pod, 0, len(objs))
	for _, obj := range objs {
		all = append(all, obj.(*corev1.Pod))
	}
	return all, nil
}
