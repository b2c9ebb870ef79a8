package owned

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Gone says of the error of a patch that names a pod's UID that the pod is gone, or another one of its name is in its place. Of the latter API servers tell in
// more than one way: by a conflict, or as a change of a field that cannot be changed (422); either can also mean something else.
func Gone(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, err error) bool {
	switch {
	case apierrors.IsNotFound(err):
		return true
	case !apierrors.IsConflict(err) && !apierrors.IsInvalid(err):
		return false
	}
	now, err := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID
}
