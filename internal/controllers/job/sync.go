package job

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// sync does what is to be done for a job now.
func (c *Controller) sync(ctx context.Context, j *batchv1.Job) (again time.Duration, err error) {
	if Finished(j) != nil || !ours(j) {
		c.forget(cache.MetaObjectToName(j))
		return 0, nil
	}
	pods, err := c.claim(ctx, j)
	if err != nil {
		return 0, err
	}
	if c.anyFreed(pods) {
		return behind, nil
	}
	state := State{Job: j, Pods: pods, Failures: c.failed(j, pods), Now: c.now()}
	plan := Decide(state)
	done, acted := c.act(ctx, j, plan)
	if err := c.track(ctx, state, Track(state, plan, done)); err != nil {
		return 0, err
	}
	return plan.Again, acted
}

// claim returns the pods of a job, after it has taken over and let go those that are to change hands. With the job goes the finalizer.
func (c *Controller) claim(ctx context.Context, j *batchv1.Job) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector: %w", err)
	}
	all, err := owned.OfOrOrphans[*corev1.Pod](c.pods, j, selector)
	if err != nil {
		return nil, err
	}
	return c.control.Claim(ctx, j, owned.Claim(j, selector, all), func(ctx context.Context) (metav1.Object, error) {
		return c.config.Client.BatchV1().Jobs(j.Namespace).Get(ctx, j.Name, metav1.GetOptions{})
	})
}

// anyFreed says whether the cache shows a finalizer that was taken off. The version of the write does not tell that: a pod that goes with its finalizer has none.
func (c *Controller) anyFreed(pods []*corev1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pod := range pods {
		if at, freed := c.freed[pod.UID]; freed && tracked(pod) {
			if c.now().Sub(at) < longEnough {
				return true
			}
			delete(c.freed, pod.UID) // somebody has given it the finalizer again, before the cache showed it without
		}
	}
	return false
}

// failed are the failures of a job, with those of its pods.
func (c *Controller) failed(j *batchv1.Job, pods []*corev1.Pod) Failures {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := cache.MetaObjectToName(j)
	before := c.histories[name]
	if before.of != j.UID {
		before = history{of: j.UID}
	}
	before.failures = before.failures.with(j, pods)
	c.histories[name] = before
	return before.failures
}

func (c *Controller) forget(name cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.histories, name)
}

// act makes and deletes pods as planned, as far as it comes.
func (c *Controller) act(ctx context.Context, j *batchv1.Job, plan Plan) (done Done, err error) {
	var mu sync.Mutex
	more, err := c.config.Pace.SlowStart(len(plan.Create), func(i int) error {
		if err := failpoint.Hit("controllers/job/create"); err != nil {
			return err
		}
		if err := c.control.Create(ctx, j, plan.Create[i].pod(j)); err != nil {
			return err
		}
		mu.Lock()
		done.Created++
		mu.Unlock()
		return failpoint.Hit("controllers/job/created")
	})
	if err != nil {
		return done, err
	}
	if more > 0 {
		c.loop.LookAfter(j, more)
	}
	err = owned.AtOnce(len(plan.Delete), func(i int) error {
		pod := plan.Delete[i]
		if plan.Release {
			if err := c.free(ctx, j, pod); err != nil {
				return err
			}
		}
		if err := failpoint.Hit("controllers/job/delete"); err != nil {
			return err
		}
		if err := c.control.Delete(ctx, j, pod); err != nil {
			return err
		}
		mu.Lock()
		done.Deleted = append(done.Deleted, pod)
		mu.Unlock()
		return failpoint.Hit("controllers/job/deleted")
	})
	return done, err
}

// track writes down what has become of a job: see the package's documentation for the order.
func (c *Controller) track(ctx context.Context, s State, r Record) error {
	j, err := c.tell(ctx, s.Job, r.Status)
	if err != nil || j == nil {
		return err
	}
	if r.Suspension != nil {
		reason := map[corev1.ConditionStatus]string{corev1.ConditionTrue: "Suspended", corev1.ConditionFalse: "Resumed"}[r.Suspension.Status]
		c.config.Events.Event(j, corev1.EventTypeNormal, reason, r.Suspension.Message)
	}
	var mu sync.Mutex
	var freed []*corev1.Pod
	left := owned.AtOnce(len(r.Free), func(i int) error {
		if err := c.free(ctx, j, r.Free[i]); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		freed = append(freed, r.Free[i])
		return nil
	})
	status := j.Status.DeepCopy()
	end := r.Settle(status, freed, c.now())
	if j, err = c.tell(ctx, j, *status); err != nil || j == nil {
		return err
	}
	if end != nil {
		c.finished(j, end)
	}
	return left
}

// finished tells of the end of a job.
func (c *Controller) finished(j *batchv1.Job, end *batchv1.JobCondition) {
	if end.Type == batchv1.JobFailed {
		c.config.Events.Event(j, corev1.EventTypeWarning, end.Reason, end.Message)
		return
	}
	if j.Spec.Completions != nil && j.Status.Succeeded > *j.Spec.Completions {
		c.config.Events.Event(j, corev1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached")
	}
	c.config.Events.Event(j, corev1.EventTypeNormal, "Completed", "Job completed")
}

// tell writes the status of a job, if it is another one, and returns the job as it is then; nil: it is gone.
func (c *Controller) tell(ctx context.Context, j *batchv1.Job, status batchv1.JobStatus) (*batchv1.Job, error) {
	if equality.Semantic.DeepEqual(status, j.Status) {
		return j, nil
	}
	if err := failpoint.Hit("controllers/job/tell"); err != nil {
		return nil, err
	}
	told := j.DeepCopy()
	told.Status = status
	written, err := c.config.Client.BatchV1().Jobs(j.Namespace).UpdateStatus(ctx, told, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err := c.loop.Told(written, err); err != nil {
		return nil, err
	}
	return written, failpoint.Hit("controllers/job/told")
}

// free takes the finalizer off a pod of a job. A pod that is gone has none.
func (c *Controller) free(ctx context.Context, j *batchv1.Job, pod *corev1.Pod) error {
	if !tracked(pod) {
		return nil
	}
	if err := failpoint.Hit("controllers/job/free"); err != nil {
		return err
	}
	c.mu.Lock()
	c.freed[pod.UID] = c.now()
	c.mu.Unlock()
	freed, err := c.withoutFinalizer(ctx, pod)
	if err != nil {
		c.shown(pod.UID)
		return err
	}
	// Of a pod that had gone already there is no event any more.
	if shown, exists, err := c.pods.GetIndexer().Get(pod); err == nil {
		if now, ok := shown.(*corev1.Pod); !exists || ok && (now.UID != pod.UID || !tracked(now)) {
			c.shown(pod.UID)
		}
	}
	if freed != nil {
		c.loop.Unseen.Wrote(cache.MetaObjectToName(j), c.pods.GetIndexer(), freed.ResourceVersion)
	}
	return failpoint.Hit("controllers/job/freed")
}

// withoutFinalizer patches a pod, by its UID; nil: it is gone.
func (c *Controller) withoutFinalizer(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "$deleteFromPrimitiveList/finalizers": []string{batchv1.JobTrackingFinalizer},
	}})
	if err != nil {
		return nil, err
	}
	freed, err := c.config.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err == nil:
		return freed, nil
	}
	// Invalid, or a conflict: another pod has its name.
	if now, lost := c.config.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); apierrors.IsNotFound(lost) || lost == nil && now.UID != pod.UID {
		return nil, nil
	}
	return nil, fmt.Errorf("finalizer of pod %s: %w", pod.Name, err)
}

// release takes the finalizer off a pod that no job cares for any more.
func (c *Controller) release(ctx context.Context, name cache.ObjectName) error {
	obj, exists, err := c.pods.GetIndexer().GetByKey(name.String())
	pod, ok := obj.(*corev1.Pod)
	if err != nil || !exists || !ok || !tracked(pod) || c.hasJob(pod) {
		return err
	}
	if of := metav1.GetControllerOfNoCopy(pod); of != nil { // the cache may not know the job yet, or know an older one of its name
		live, err := c.config.Client.BatchV1().Jobs(pod.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("job %s of pod %s: %w", of.Name, name, err)
		case live.UID == of.UID && keepsFinalizers(live):
			return nil
		}
	}
	if err := failpoint.Hit("controllers/job/release"); err != nil {
		return err
	}
	_, err = c.withoutFinalizer(ctx, pod)
	return err
}
