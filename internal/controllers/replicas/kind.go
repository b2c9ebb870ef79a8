package replicas

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"monopod.dev/monopod/internal/controllers/owned"
)

// kind is what differs between replica sets and replication controllers. T is the object's type.
type kind[T owned.Owner] struct {
	// wanted is what an object wants; an error: its selector cannot be read.
	wanted func(T) (Wanted, error)
	// selector is an object's, for a first look: it may not be one.
	selector func(T) *metav1.LabelSelector
	// status is an object with the status that says something of it, and whether that is another one than it has.
	status func(object T, counts Counts, has *failure, now time.Time) (T, bool)
	// live reads an object from the API server, write writes its status.
	live  func(ctx context.Context, client kubernetes.Interface, namespace, name string) (T, error)
	write func(ctx context.Context, client kubernetes.Interface, object T) (T, error)
}

var replicaSets = kind[*appsv1.ReplicaSet]{
	wanted: func(rs *appsv1.ReplicaSet) (Wanted, error) {
		selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
		return Wanted{Replicas: *rs.Spec.Replicas, MinReadySeconds: rs.Spec.MinReadySeconds, Selector: selector, Template: &rs.Spec.Template}, err
	},
	selector: func(rs *appsv1.ReplicaSet) *metav1.LabelSelector { return rs.Spec.Selector },
	status: func(rs *appsv1.ReplicaSet, counts Counts, has *failure, now time.Time) (*appsv1.ReplicaSet, bool) {
		status := appsv1.ReplicaSetStatus{
			Replicas: counts.Replicas, FullyLabeledReplicas: counts.FullyLabeled, ReadyReplicas: counts.Ready, AvailableReplicas: counts.Available,
			TerminatingReplicas: &counts.Terminating, ObservedGeneration: rs.Generation,
			Conditions: conditions(rs.Status.Conditions,
				func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure }, has,
				func(f failure) appsv1.ReplicaSetCondition {
					return appsv1.ReplicaSetCondition{
						Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: f.reason, Message: f.message, LastTransitionTime: metav1.NewTime(now),
					}
				}),
		}
		if equality.Semantic.DeepEqual(status, rs.Status) {
			return rs, false
		}
		rs = rs.DeepCopy()
		rs.Status = status
		return rs, true
	},
	live: func(ctx context.Context, client kubernetes.Interface, namespace, name string) (*appsv1.ReplicaSet, error) {
		return client.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
	},
	write: func(ctx context.Context, client kubernetes.Interface, rs *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
		return client.AppsV1().ReplicaSets(rs.Namespace).UpdateStatus(ctx, rs, metav1.UpdateOptions{})
	},
}

var replicationControllers = kind[*corev1.ReplicationController]{
	wanted: func(rc *corev1.ReplicationController) (Wanted, error) {
		return Wanted{
			Replicas: *rc.Spec.Replicas, MinReadySeconds: rc.Spec.MinReadySeconds, Template: rc.Spec.Template,
			Selector: labels.SelectorFromSet(rc.Spec.Selector),
		}, nil
	},
	selector: func(rc *corev1.ReplicationController) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: rc.Spec.Selector}
	},
	status: func(rc *corev1.ReplicationController, counts Counts, has *failure, now time.Time) (*corev1.ReplicationController, bool) {
		status := corev1.ReplicationControllerStatus{
			Replicas: counts.Replicas, FullyLabeledReplicas: counts.FullyLabeled, ReadyReplicas: counts.Ready, AvailableReplicas: counts.Available,
			ObservedGeneration: rc.Generation,
			Conditions: conditions(rc.Status.Conditions,
				func(c corev1.ReplicationControllerCondition) bool {
					return c.Type == corev1.ReplicationControllerReplicaFailure
				}, has,
				func(f failure) corev1.ReplicationControllerCondition {
					return corev1.ReplicationControllerCondition{
						Type: corev1.ReplicationControllerReplicaFailure, Status: corev1.ConditionTrue, Reason: f.reason, Message: f.message, LastTransitionTime: metav1.NewTime(now),
					}
				}),
		}
		if equality.Semantic.DeepEqual(status, rc.Status) {
			return rc, false
		}
		rc = rc.DeepCopy()
		rc.Status = status
		return rc, true
	},
	live: func(ctx context.Context, client kubernetes.Interface, namespace, name string) (*corev1.ReplicationController, error) {
		return client.CoreV1().ReplicationControllers(namespace).Get(ctx, name, metav1.GetOptions{})
	},
	write: func(ctx context.Context, client kubernetes.Interface, rc *corev1.ReplicationController) (*corev1.ReplicationController, error) {
		return client.CoreV1().ReplicationControllers(rc.Namespace).UpdateStatus(ctx, rc, metav1.UpdateOptions{})
	},
}
