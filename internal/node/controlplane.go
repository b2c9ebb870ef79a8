package node

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// roleLabel says to people, and to charts that choose nodes by it, that the node has the API server. It is not for an agent to say: NodeRestriction.
	roleLabel = "node-role.kubernetes.io/control-plane"
	// provider is the scheme of the ids of nodes that are their own cluster.
	provider = "monopod://"
)

// controlPlane says of a node that it is its own cluster.
type controlPlane struct {
	node string
	kube kubernetes.Interface
	// adopted is the Node object that has got the label; calls come one after the other, from the agent that there is.
	adopted types.UID
}

// newControlPlane makes one that has the rights of the controllers.
func newControlPlane(node string, kube *rest.Config) (*controlPlane, error) {
	client, err := kubernetes.NewForConfig(kube)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return &controlPlane{node: node, kube: client}, nil
}

func (c *controlPlane) providerID() string { return provider + c.node }

// adopt gives a Node object the label, once in the life of the process: who takes it away meanwhile does not want it.
func (c *controlPlane) adopt(ctx context.Context, uid types.UID) error {
	if uid == c.adopted {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "labels": map[string]string{roleLabel: ""}}})
	if err != nil {
		return err
	}
	_, err = c.kube.CoreV1().Nodes().Patch(ctx, c.node, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is another one by now, of which the agent hears
	}
	if err != nil {
		return fmt.Errorf("label %s of node %s: %w", roleLabel, c.node, err)
	}
	c.adopted = uid
	return nil
}
