package daemonset

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/revisions"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// act carries a plan out: first the revision, which pods are made by, and the status in any case.
func (c *Controller) act(ctx context.Context, set *appsv1.DaemonSet, plan Plan) error {
	if set.DeletionTimestamp != nil {
		return nil
	}
	switch outcome, err := c.history.Keep(ctx, owner(set), plan.Revision); {
	case err != nil, outcome == revisions.Refused:
		return err
	case outcome == revisions.Collided:
		return c.collided(ctx, set, plan.Revision.Current.Name)
	}
	err := errors.Join(c.create(ctx, set, plan.Create), c.delete(ctx, set, plan.Delete))
	if plan.Status != set {
		err = errors.Join(err, c.tell(ctx, plan.Status))
	}
	if err != nil {
		return err
	}
	return c.history.Forget(ctx, owner(set), plan.Forget)
}

func (c *Controller) create(ctx context.Context, set *appsv1.DaemonSet, pods []*corev1.Pod) error {
	more, err := c.config.Pace.SlowStart(len(pods), func(i int) error {
		if err := failpoint.Hit(failpoints + "/create"); err != nil {
			return err
		}
		if err := c.control.Create(ctx, set, pods[i]); err != nil {
			return err
		}
		return failpoint.Hit(failpoints + "/created")
	})
	if more > 0 {
		c.loop.LookAfter(set, more)
	}
	return err
}

func (c *Controller) delete(ctx context.Context, set *appsv1.DaemonSet, all []Deletion) error {
	c.patience.keep(set, func(node string) bool {
		_, err := c.nodes.Get(node)
		return err == nil
	})
	return owned.AtOnce(len(all), func(i int) error {
		if err := failpoint.Hit(failpoints + "/delete"); err != nil {
			return err
		}
		pod := all[i].Pod
		switch all[i].Ended {
		case corev1.PodFailed:
			c.patience.next(set, target(pod), c.now())
			c.config.Events.Eventf(set, corev1.EventTypeWarning, "FailedDaemonPod",
				"Found failed daemon pod %s/%s on node %s, will try to kill it", pod.Namespace, pod.Name, target(pod))
		case corev1.PodSucceeded:
			c.config.Events.Eventf(set, corev1.EventTypeNormal, "SucceededDaemonPod",
				"Found succeeded daemon pod %s/%s on node %s, will try to delete it", pod.Namespace, pod.Name, target(pod))
		}
		if err := c.control.Delete(ctx, set, pod); err != nil {
			return err
		}
		return failpoint.Hit(failpoints + "/deleted")
	})
}

// collided writes that another one has the name of a revision, so that it gets another name.
func (c *Controller) collided(ctx context.Context, set *appsv1.DaemonSet, name string) error {
	c.config.Log.Info("another revision has the name that a daemon set's new one would have had; it gets another one",
		"namespace", set.Namespace, "daemonset", set.Name, "name", name)
	set = set.DeepCopy()
	if set.Status.CollisionCount == nil {
		set.Status.CollisionCount = new(int32)
	}
	*set.Status.CollisionCount++
	return c.tell(ctx, set)
}

// tell writes a set's status.
func (c *Controller) tell(ctx context.Context, set *appsv1.DaemonSet) error {
	if err := failpoint.Hit(failpoints + "/tell"); err != nil {
		return err
	}
	return c.loop.Told(c.config.Client.AppsV1().DaemonSets(set.Namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{}))
}
