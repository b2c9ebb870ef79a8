package disruption

import (
	"context"
	"errors"
	"fmt"
	"math"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"monopod.dev/monopod/internal/controllers/scales"
)

// Scales reads the scales of objects of any kind.
type Scales interface {
	// Get is the scale of an object. That it is not there is an error NotFound; that such objects have none, scales.ErrNotScalable.
	Get(ctx context.Context, of schema.GroupKind, namespace, name string) (*autoscalingv1.Scale, schema.GroupResource, error)
}

// errNoScale is that a pod's owner does not say how many pods there should be. It does not pass by trying again: a change is told of.
var errNoScale = errors.New("no scale")

// owner is an object that wants so many pods.
type owner struct {
	uid   types.UID
	wants int32
}

// owners finds those who own pods.
type owners struct {
	deployments appslisters.DeploymentLister
	sets        appslisters.ReplicaSetLister
	stateful    appslisters.StatefulSetLister
	controllers corelisters.ReplicationControllerLister
	// scales has those that are not in a cache.
	scales Scales
}

// expected is how many pods there should be: the sum of what the owners of these pods want, each counted once. Pods that no controller owns are unmanaged. Of
// each object by which this is decided asks is told before it is read.
func (o owners) expected(ctx context.Context, all []*corev1.Pod, asks func(types.UID)) (sum int32, unmanaged []string, err error) {
	want := map[types.UID]int32{}
	known := map[types.UID]bool{}
	for _, pod := range all {
		ref := metav1.GetControllerOfNoCopy(pod)
		if ref == nil {
			unmanaged = append(unmanaged, pod.Name)
			continue
		}
		if known[ref.UID] {
			continue
		}
		asks(ref.UID)
		of, err := o.of(ctx, pod.Namespace, ref, asks)
		if err != nil {
			return 0, nil, err
		}
		if of == nil {
			return 0, nil, noScale{fmt.Errorf("found no controllers for pod %q", pod.Name)}
		}
		known[ref.UID] = true
		want[of.uid] = of.wants
	}
	total := 0 // each of them may be as large as the sum can be
	for _, n := range want {
		total += int(n)
	}
	return int32(min(total, math.MaxInt32)), unmanaged, nil
}

// of is the owner that a reference means, which for a replica set of a deployment is the deployment; nil: it is not there.
func (o owners) of(ctx context.Context, namespace string, ref *metav1.OwnerReference, asks func(types.UID)) (*owner, error) {
	group, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, noScale{err}
	}
	if of := o.cached(namespace, group.Group, ref, asks); of != nil {
		return of, nil
	}
	scale, _, err := o.scales.Get(ctx, schema.GroupKind{Group: group.Group, Kind: ref.Kind}, namespace, ref.Name)
	switch {
	case errors.Is(err, scales.ErrNotScalable):
		return nil, noScale{err}
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("scale of %s %s/%s: %w", ref.Kind, namespace, ref.Name, err)
	case scale.UID != ref.UID:
		return nil, nil
	}
	return &owner{scale.UID, scale.Spec.Replicas}, nil
}

// cached is an owner of the kinds that are watched; nil: it is none of them, or not there.
func (o owners) cached(namespace, group string, ref *metav1.OwnerReference, asks func(types.UID)) *owner {
	var object metav1.Object
	var replicas *int32
	switch (schema.GroupKind{Group: group, Kind: ref.Kind}) {
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "ReplicaSet"}:
		if set, err := o.sets.ReplicaSets(namespace).Get(ref.Name); err == nil && set.UID == ref.UID {
			if of := metav1.GetControllerOfNoCopy(set); of != nil && of.Kind == "Deployment" {
				asks(of.UID)
				if d, err := o.deployments.Deployments(namespace).Get(of.Name); err == nil && d.UID == of.UID {
					return &owner{d.UID, *d.Spec.Replicas}
				}
			}
			object, replicas = set, set.Spec.Replicas
		}
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "StatefulSet"}:
		if set, err := o.stateful.StatefulSets(namespace).Get(ref.Name); err == nil {
			object, replicas = set, set.Spec.Replicas
		}
	case schema.GroupKind{Kind: "ReplicationController"}:
		if rc, err := o.controllers.ReplicationControllers(namespace).Get(ref.Name); err == nil {
			object, replicas = rc, rc.Spec.Replicas
		}
	}
	if object == nil || object.GetUID() != ref.UID {
		return nil
	}
	return &owner{object.GetUID(), *replicas}
}

// noScale is why a pod's owner does not say how many pods there should be.
type noScale struct{ error }

func (n noScale) Unwrap() []error { return []error{n.error, errNoScale} }

// wants is what of an owner the number of pods that there should be depends on.
func wants(object any) (of struct {
	uid      types.UID
	replicas int32
	owner    types.UID
}) {
	var replicas *int32
	switch object := object.(type) {
	case *appsv1.Deployment:
		replicas = object.Spec.Replicas
	case *appsv1.ReplicaSet:
		replicas = object.Spec.Replicas
	case *appsv1.StatefulSet:
		replicas = object.Spec.Replicas
	case *corev1.ReplicationController:
		replicas = object.Spec.Replicas
	}
	if replicas != nil {
		of.replicas = *replicas
	}
	if object, ok := object.(metav1.Object); ok {
		of.uid = object.GetUID()
		if ref := metav1.GetControllerOfNoCopy(object); ref != nil {
			of.owner = ref.UID
		}
	}
	return of
}
