// Package ttl deletes jobs that have finished when the time is over that they say they are kept for (ttlSecondsAfterFinished).
package ttl

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchinformers "k8s.io/client-go/informers/batch/v1"
	"k8s.io/client-go/kubernetes"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/controllers/job"
	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/queue"
)

// workers is how many jobs are worked on at a time.
const workers = 5

// Config is what a Controller needs.
type Config struct {
	Client kubernetes.Interface
	// Jobs are watched by others, too; who made the Controller starts them.
	Jobs batchinformers.JobInformer
	Log  *slog.Logger
}

// Controller deletes jobs whose time is over.
type Controller struct {
	config Config
	jobs   batchlisters.JobLister
	queue  *queue.Queue[cache.ObjectName]
	known  cache.DoneChecker
	now    func() time.Time
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{config: config, jobs: config.Jobs.Lister(), queue: queue.New[cache.ObjectName](), now: time.Now}
	changed, err := config.Jobs.Informer().AddEventHandler(owned.Each(c.queue.Add))
	if err != nil {
		return nil, fmt.Errorf("watch jobs: %w", err)
	}
	c.known = changed.HasSyncedChecker()
	return c, nil
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error {
	cache.WaitFor(ctx, "", c.known)
	c.queue.Run(ctx, workers, c.sync, func(name cache.ObjectName, err error) {
		if !apierrors.IsConflict(err) {
			c.config.Log.Warn("a job whose time is over is not deleted, trying again", "namespace", name.Namespace, "job", name.Name, "error", err)
		}
	})
	return nil
}

// left is how long a job is still kept; false: nobody says when it goes, or it goes already.
func left(j *batchv1.Job, now time.Time) (time.Duration, bool) {
	end := job.Finished(j)
	if end == nil || j.Spec.TTLSecondsAfterFinished == nil || j.DeletionTimestamp != nil {
		return 0, false
	}
	return end.LastTransitionTime.Add(time.Duration(*j.Spec.TTLSecondsAfterFinished) * time.Second).Sub(now), true
}

func (c *Controller) sync(ctx context.Context, name cache.ObjectName) error {
	known, err := c.jobs.Jobs(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) || err == nil && !c.over(known) {
		return nil
	}
	if err != nil {
		return err
	}
	// The cache may not show yet that it is to be kept for longer, or that it is another one of its name.
	j, err := c.config.Client.BatchV1().Jobs(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !c.over(j) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	if err := failpoint.Hit("controllers/ttl/delete"); err != nil {
		return err
	}
	err = c.config.Client.BatchV1().Jobs(name.Namespace).Delete(ctx, name.Name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationForeground),
		Preconditions:     &metav1.Preconditions{UID: &j.UID, ResourceVersion: &j.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// over says whether a job's time is over; one that has some left is looked at again when it has none.
func (c *Controller) over(j *batchv1.Job) bool {
	d, goes := left(j, c.now())
	if goes && d > 0 {
		c.queue.AddAfter(cache.MetaObjectToName(j), d)
	}
	return goes && d <= 0
}
