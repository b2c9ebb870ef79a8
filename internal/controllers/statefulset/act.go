package statefulset

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/revisions"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// updated is what is done about a pod that gets its labels back.
const updated owned.Deed = "Update"

// act carries a plan out: first the revision, which pods are made by, and the status in any case.
func (c *Controller) act(ctx context.Context, set *appsv1.StatefulSet, plan Plan) error {
	if set.DeletionTimestamp == nil {
		switch outcome, err := c.history.Keep(ctx, owner(set), plan.Revision); {
		case err != nil, outcome == revisions.Refused:
			return err
		case outcome == revisions.Collided:
			return c.collided(ctx, set, plan.Revision.Current.Name)
		}
	}
	err := c.change(ctx, set, plan)
	if plan.Status != set {
		err = errors.Join(err, c.tell(ctx, plan.Status))
	}
	if err != nil {
		return err
	}
	return c.history.Forget(ctx, owner(set), plan.Forget)
}

// change makes, changes and deletes pods as planned, each after its claims.
func (c *Controller) change(ctx context.Context, set *appsv1.StatefulSet, plan Plan) error {
	for _, one := range plan.Own {
		if err := c.own(ctx, set, one); err != nil {
			return err
		}
	}
	for _, pod := range plan.Supply {
		if err := c.makeClaims(ctx, set, pod); err != nil {
			return err
		}
	}
	for _, pod := range plan.Identify {
		if err := c.identify(ctx, set, pod); err != nil {
			return err
		}
	}
	if err := c.delete(ctx, set, plan.Replace); err != nil {
		return err
	}
	more, err := c.config.Pace.SlowStart(len(plan.Create), func(i int) error {
		if err := failpoint.Hit(failpoints + "/create"); err != nil {
			return err
		}
		if err := c.makeClaims(ctx, set, plan.Create[i]); err != nil {
			c.told(set, plan.Create[i], owned.Created, err)
			return err
		}
		if err := c.control.Create(ctx, set, plan.Create[i]); err != nil {
			return err
		}
		return failpoint.Hit(failpoints + "/created")
	})
	if err != nil {
		return err
	}
	if more > 0 {
		c.loop.LookAfter(set, more)
	}
	return c.delete(ctx, set, plan.Delete)
}

func (c *Controller) delete(ctx context.Context, set *appsv1.StatefulSet, pods []*corev1.Pod) error {
	return owned.AtOnce(len(pods), func(i int) error {
		if err := failpoint.Hit(failpoints + "/delete"); err != nil {
			return err
		}
		if err := c.control.Delete(ctx, set, pods[i]); err != nil {
			return err
		}
		return failpoint.Hit(failpoints + "/deleted")
	})
}

// identify writes a pod with the labels of its name.
func (c *Controller) identify(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) error {
	if err := failpoint.Hit(failpoints + "/identify"); err != nil {
		return err
	}
	written, err := c.config.Client.CoreV1().Pods(pod.Namespace).Update(ctx, pod, metav1.UpdateOptions{})
	if err != nil {
		if !apierrors.IsConflict(err) {
			c.told(set, pod, updated, err)
		}
		return fmt.Errorf("labels of pod %s: %w", pod.Name, err)
	}
	c.loop.Unseen.Wrote(cache.MetaObjectToName(set), c.pods.GetIndexer(), written.ResourceVersion)
	c.told(set, pod, updated, nil)
	return nil
}

// told tells of what was done about a pod.
func (c *Controller) told(set owned.Owner, pod *corev1.Pod, did owned.Deed, err error) {
	switch {
	case err == nil:
		c.config.Events.Eventf(set, corev1.EventTypeNormal, "Successful"+string(did), "%s Pod %s in StatefulSet %s successful", did, pod.Name, set.GetName())
	case apierrors.IsAlreadyExists(err): // the one of its name that is not seen yet, or somebody else's; the log tells of it
	default:
		c.config.Events.Eventf(set, corev1.EventTypeWarning, "Failed"+string(did), "%s Pod %s in StatefulSet %s failed error: %v", did, pod.Name, set.GetName(), err)
	}
}

// collided writes that another one has the name of a revision, so that it gets another name.
func (c *Controller) collided(ctx context.Context, set *appsv1.StatefulSet, name string) error {
	c.config.Log.Info("another revision has the name that a stateful set's new one would have had; it gets another one",
		"namespace", set.Namespace, "statefulset", set.Name, "name", name)
	set = set.DeepCopy()
	if set.Status.CollisionCount == nil {
		set.Status.CollisionCount = new(int32)
	}
	*set.Status.CollisionCount++
	return c.tell(ctx, set)
}

// tell writes a set's status.
func (c *Controller) tell(ctx context.Context, set *appsv1.StatefulSet) error {
	if err := failpoint.Hit(failpoints + "/tell"); err != nil {
		return err
	}
	return c.loop.Told(c.config.Client.AppsV1().StatefulSets(set.Namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{}))
}
