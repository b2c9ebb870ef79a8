package statefulset

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A member of a set has a claim of each of the set's volumeClaimTemplates, named by the member's ordinal, in a volume of the template's name. It is made before the
// member, unless it is there: a member that is made anew finds what it had. Claims are kept when their members go, and when the set does; that is the default of
// persistentVolumeClaimRetentionPolicy, and its other values have no effect here. (Our own API server serves no claims yet, and refuses the templates.)

// claims are those of a member, one for each template, in the order of the templates.
func claims(set *appsv1.StatefulSet, ordinal int) (all []*corev1.PersistentVolumeClaim) {
	for i := range set.Spec.VolumeClaimTemplates {
		claim := set.Spec.VolumeClaimTemplates[i].DeepCopy()
		claim.Namespace, claim.Name = set.Namespace, claim.Name+"-"+podName(set, ordinal)
		if claim.Labels == nil {
			claim.Labels = map[string]string{}
		}
		if set.Spec.Selector != nil {
			maps.Copy(claim.Labels, set.Spec.Selector.MatchLabels)
		}
		all = append(all, claim)
	}
	return all
}

// mountClaims gives a member the volumes of its claims, each in place of one of the same name that the template has.
func mountClaims(set *appsv1.StatefulSet, pod *corev1.Pod, ordinal int) {
	for i, claim := range claims(set, ordinal) {
		name := set.Spec.VolumeClaimTemplates[i].Name
		pod.Spec.Volumes = append(slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }), corev1.Volume{
			Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}},
		})
	}
}

// makeClaims makes the claims of a member that is about to be made, as far as they are not there. One that is being deleted is waited for.
func (c *Controller) makeClaims(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) error {
	place, named := ordinal(set, pod)
	if !named {
		return fmt.Errorf("pod %s is no member of the set", pod.Name)
	}
	for _, claim := range claims(set, place) {
		all := c.config.Client.CoreV1().PersistentVolumeClaims(claim.Namespace)
		there, err := all.Get(ctx, claim.Name, metav1.GetOptions{})
		switch {
		case err == nil && there.DeletionTimestamp != nil:
			return fmt.Errorf("claim %s is being deleted: pod %s is made when it is gone", claim.Name, pod.Name)
		case err == nil:
			continue
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("claim %s: %w", claim.Name, err)
		}
		_, err = all.Create(ctx, claim, metav1.CreateOptions{})
		switch {
		case apierrors.IsAlreadyExists(err):
			err = nil
		case err == nil:
			c.config.Events.Eventf(set, corev1.EventTypeNormal, "SuccessfulCreate", "create Claim %s Pod %s in StatefulSet %s success", claim.Name, pod.Name, set.Name)
		default:
			c.config.Events.Eventf(set, corev1.EventTypeWarning, "FailedCreate", "create Claim %s for Pod %s in StatefulSet %s failed error: %s",
				claim.Name, pod.Name, set.Name, err)
		}
		if err != nil {
			return fmt.Errorf("claim %s: %w", claim.Name, err)
		}
	}
	return nil
}
