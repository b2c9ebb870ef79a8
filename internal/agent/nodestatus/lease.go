package nodestatus

import (
	"context"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"
)

const (
	leaseSeconds = 40
	leaseRenewal = 10 * time.Second
)

// KeepLease renews the node's Lease in kube-node-lease until ctx ends. The lease belongs to the Node object, and goes
// with it.
func KeepLease(ctx context.Context, client kubernetes.Interface, nodeName string, registered <-chan struct{}) {
	// The object that owns the lease has to be there first.
	select {
	case <-registered:
	case <-ctx.Done():
		return
	}
	own := func(l *coordv1.Lease) error {
		if len(l.OwnerReferences) > 0 {
			return nil
		}
		node, err := client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		l.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1.SchemeGroupVersion.String(), Kind: "Node", Name: nodeName, UID: node.UID,
		}}
		return nil
	}
	lease.NewController(clock.RealClock{}, client, nodeName, leaseSeconds, nil, leaseRenewal, nodeName,
		v1.NamespaceNodeLease, own).Run(ctx)
}
