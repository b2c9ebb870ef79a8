package statefulset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/informer"
)

// A member of a set has a claim of each of the set's volumeClaimTemplates, named by the member's ordinal, in a volume of the template's name. It is made before the
// member, unless it is there: a member that is made anew finds what it had. Whether claims go with their members and the set, retention.go says.

// claimName is the name of a member's claim of a template.
func claimName(set *appsv1.StatefulSet, template, ordinal int) string {
	return set.Spec.VolumeClaimTemplates[template].Name + "-" + podName(set, ordinal)
}

// claims are those of a member that is to be there, one for each template, in the order of the templates.
func claims(set *appsv1.StatefulSet, ordinal int) (all []*corev1.PersistentVolumeClaim) {
	for i := range set.Spec.VolumeClaimTemplates {
		claim := set.Spec.VolumeClaimTemplates[i].DeepCopy()
		claim.Namespace, claim.Name = set.Namespace, claimName(set, i, ordinal)
		if claim.Labels == nil {
			claim.Labels = map[string]string{}
		}
		if set.Spec.Selector != nil {
			maps.Copy(claim.Labels, set.Spec.Selector.MatchLabels)
		}
		if whenDeleted(set) == appsv1.DeletePersistentVolumeClaimRetentionPolicyType { // from the first moment on, so that none is left when the set goes soon
			claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, kind)}
		}
		all = append(all, claim)
	}
	return all
}

// mountClaims gives a member the volumes of its claims, each in place of one of the same name that the template has.
func mountClaims(set *appsv1.StatefulSet, pod *corev1.Pod, ordinal int) {
	for i := range set.Spec.VolumeClaimTemplates {
		name := set.Spec.VolumeClaimTemplates[i].Name
		pod.Spec.Volumes = append(slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }), corev1.Volume{
			Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(set, i, ordinal)}},
		})
	}
}

// claim is a claim of a set's namespace as the cache has it; nil: it has none.
func (c *Controller) claim(set *appsv1.StatefulSet, name string) *corev1.PersistentVolumeClaim {
	obj, _, err := c.claims.GetIndexer().GetByKey(cache.NewObjectName(set.Namespace, name).String())
	if err != nil {
		return nil
	}
	claim, _ := obj.(*corev1.PersistentVolumeClaim)
	return claim
}

// claimGone has the sets looked at that may have waited for a claim to go, or to belong to others.
func (c *Controller) claimGone(obj any) {
	claim, ok := informer.Last[*corev1.PersistentVolumeClaim](obj)
	if !ok {
		return
	}
	sets, err := c.config.Sets.Informer().GetIndexer().ByIndex(cache.NamespaceIndex, claim.Namespace)
	if err != nil {
		c.config.Log.Error("the sets of a namespace are not found", "namespace", claim.Namespace, "error", err)
		return
	}
	for _, obj := range sets {
		if set, ok := obj.(*appsv1.StatefulSet); ok && slices.ContainsFunc(set.Spec.VolumeClaimTemplates, func(t corev1.PersistentVolumeClaim) bool {
			return strings.HasPrefix(claim.Name, t.Name+"-"+set.Name+"-")
		}) {
			c.loop.Look(cache.MetaObjectToName(set))
		}
	}
}

// makeClaims makes the claims of a member, as far as they are not there. One that is being deleted is waited for.
func (c *Controller) makeClaims(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) error {
	place, named := ordinal(set, pod)
	if !named {
		return fmt.Errorf("pod %s is no member of the set", pod.Name)
	}
	var all []error
	for _, claim := range claims(set, place) {
		there := c.claim(set, claim.Name)
		if there == nil {
			var err error
			if there, err = c.makeClaim(ctx, set, pod, claim); err != nil {
				all = append(all, err)
				continue
			}
		}
		if there.DeletionTimestamp != nil {
			all = append(all, fmt.Errorf("pvc %s is being deleted", claim.Name))
		} else if _, foreign := owners(set, pod, there); foreign {
			c.conflicts(set, claim.Name)
		}
	}
	return utilerrors.NewAggregate(all)
}

// makeClaim makes a claim, or returns the one that is there and that the cache does not show yet.
func (c *Controller) makeClaim(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	if err := failpoint.Hit(failpoints + "/claim"); err != nil {
		return nil, err
	}
	claims := c.config.Client.CoreV1().PersistentVolumeClaims(claim.Namespace)
	made, err := claims.Create(ctx, claim, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		if made, err = claims.Get(ctx, claim.Name, metav1.GetOptions{}); err != nil {
			return nil, fmt.Errorf("failed to retrieve PVC %s: %w", claim.Name, err)
		}
		return made, nil
	case err != nil:
		c.config.Events.Eventf(set, corev1.EventTypeWarning, "FailedCreate", "create Claim %s for Pod %s in StatefulSet %s failed error: %s", claim.Name, pod.Name, set.Name, err)
		return nil, fmt.Errorf("failed to create PVC %s: %w", claim.Name, err)
	}
	c.loop.Unseen.Wrote(cache.MetaObjectToName(set), c.claims.GetIndexer(), made.ResourceVersion)
	c.config.Events.Eventf(set, corev1.EventTypeNormal, "SuccessfulCreate", "create Claim %s Pod %s in StatefulSet %s success", claim.Name, pod.Name, set.Name)
	return made, failpoint.Hit(failpoints + "/claimed")
}

// own writes who owns a claim.
func (c *Controller) own(ctx context.Context, set *appsv1.StatefulSet, one Ownership) error {
	if one.Foreign {
		c.conflicts(set, one.Claim.Name)
	}
	if err := failpoint.Hit(failpoints + "/own"); err != nil {
		return err
	}
	written, err := c.config.Client.CoreV1().PersistentVolumeClaims(set.Namespace).Update(ctx, one.Claim, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil // it went by itself
	case err != nil:
		err = fmt.Errorf("could not update claim %s for delete policy ownerRefs: %w", one.Claim.Name, err)
		if !apierrors.IsConflict(errors.Unwrap(err)) {
			c.told(set, one.Pod, updated, err)
		}
		return err
	}
	c.loop.Unseen.Wrote(cache.MetaObjectToName(set), c.claims.GetIndexer(), written.ResourceVersion)
	return nil
}

// conflicts tells of a claim that somebody else controls.
func (c *Controller) conflicts(set owned.Owner, claim string) {
	c.config.Events.Eventf(set, corev1.EventTypeWarning, "ConflictingController",
		"PersistentVolumeClaim %s has a conflicting OwnerReference that acts as a managing controller, the retention policy is ignored for this claim", claim)
}
