package nodestatus

import (
	"context"
	"slices"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"
)

// LeaseSeconds is how long the node's Lease holds.
const LeaseSeconds = 40

const leaseRenewal = 10 * time.Second

// KeepLease renews the node's Lease in kube-node-lease until ctx ends. The lease belongs to the Node object, and goes with it: when that is another one
// (see Reporter.Object) the lease is its at once, lest it be collected with the one that is gone.
func KeepLease(ctx context.Context, client kubernetes.Interface, nodeName string, node *Reporter) {
	// The object that owns the lease has to be there first.
	select {
	case <-node.Registered():
	case <-ctx.Done():
		return
	}
	for ctx.Err() == nil {
		uid, replaced := node.Object()
		term, end := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			select {
			case <-replaced:
				end()
			case <-term.Done():
			}
		}()
		own := func(l *coordv1.Lease) error {
			belongTo(l, nodeName, uid)
			return nil
		}
		lease.NewController(clock.RealClock{}, client, nodeName, LeaseSeconds, nil, leaseRenewal, nodeName,
			v1.NamespaceNodeLease, own).Run(term)
		end()
		<-ended
	}
}

// belongTo makes the Node the lease's owner, in the place of one of that name which is gone.
func belongTo(l *coordv1.Lease, nodeName string, uid types.UID) {
	ref := metav1.OwnerReference{APIVersion: v1.SchemeGroupVersion.String(), Kind: "Node", Name: nodeName, UID: uid}
	l.OwnerReferences = slices.DeleteFunc(l.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.APIVersion == ref.APIVersion && o.Kind == ref.Kind && o.Name == ref.Name
	})
	l.OwnerReferences = append(l.OwnerReferences, ref)
}
