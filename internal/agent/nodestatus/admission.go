package nodestatus

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// noticed keeps a version of the node's object. Of what others have changed in its capacity Run is told: pods may have it when the status says so.
func (r *Reporter) noticed(n *v1.Node) {
	r.mu.Lock()
	changed := r.object != nil && !equality.Semantic.DeepEqual(extended(r.object.Status.Capacity), extended(n.Status.Capacity))
	r.object = n
	r.mu.Unlock()
	if changed {
		r.Changed()
	}
}

// extended are the resources whose names have a domain.
func extended(in v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range in {
		if strings.Contains(string(name), "/") {
			out[name] = q
		}
	}
	return out
}

// Node is the node as pods are admitted to it: with the labels and taints that the API server told of last, and of its status what this agent would write
// there now of what pods may have, of the system and of the features. Nil: the API server has told nothing of it yet.
func (r *Reporter) Node() *v1.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.object == nil {
		return nil
	}
	return r.admitting(r.object)
}

// Fresh is Node with the labels and taints of this moment.
func (r *Reporter) Fresh(ctx context.Context) (*v1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	n, err := r.cfg.Client.CoreV1().Nodes().Get(ctx, r.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", r.cfg.NodeName, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.admitting(n), nil
}

// admitting makes the node that admission looks at of a version of its object. r.mu is held.
func (r *Reporter) admitting(n *v1.Node) *v1.Node {
	out := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels},
		Spec:       v1.NodeSpec{Taints: n.Spec.Taints},
		Status:     v1.NodeStatus{Allocatable: r.allocatable, NodeInfo: v1.NodeSystemInfo{OperatingSystem: r.machine.Info.OperatingSystem}},
	}
	if r.cfg.Features != nil {
		out.Status.Features, _ = r.cfg.Features()
	}
	return out
}
