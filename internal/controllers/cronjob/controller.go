package cronjob

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	batchinformers "k8s.io/client-go/informers/batch/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/workload"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// workers is how many cron jobs are worked on at a time.
const workers = 5

// Config is what a Controller needs.
type Config struct {
	Client kubernetes.Interface
	// CronJobs and Jobs are watched by others, too; who made the Controller starts them.
	CronJobs batchinformers.CronJobInformer
	Jobs     batchinformers.JobInformer
	Events   record.EventRecorder
	Log      *slog.Logger
	// Now is the time; nil: that of the host.
	Now func() time.Time
	// Jumps calls its argument whenever the clock was set, until ctx ends; nil: that of the host.
	Jumps func(ctx context.Context, jumped func()) error
}

// Controller makes the jobs of cron jobs. See the package's documentation.
type Controller struct {
	config Config
	jobs   cache.SharedIndexInformer
	loop   *workload.Loop[*batchv1.CronJob]
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (c *Controller, err error) {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Jumps == nil {
		config.Jumps = jumps
	}
	c = &Controller{config: config, jobs: config.Jobs.Informer()}
	c.loop, err = workload.New(workload.Config[*batchv1.CronJob]{
		Kind: kind, Owners: config.CronJobs.Informer(), Dependents: []cache.SharedIndexInformer{c.jobs},
		Workers: workers, Sync: c.sync, Beside: c.followClock, Log: config.Log,
	})
	return c, err
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// followClock has all cron jobs looked at whenever the clock was set: their times may have come.
func (c *Controller) followClock(ctx context.Context) {
	if err := c.config.Jumps(ctx, c.loop.LookAtAll); err != nil {
		c.config.Log.Warn("a cron job runs late after the machine has slept, or its clock was put forward: nobody tells of it", "error", err)
	}
}

// sync does what is to be done for a cron job now.
func (c *Controller) sync(ctx context.Context, cj *batchv1.CronJob) (again time.Duration, err error) {
	jobs, err := owned.Of[*batchv1.Job](c.jobs, cj.UID)
	if err != nil {
		return 0, err
	}
	gone, err := c.gone(ctx, cj, jobs)
	if err != nil {
		return 0, err
	}
	plan := Decide(State{CronJob: cj, Jobs: jobs, Gone: gone, Now: c.config.Now()})
	if err := c.act(ctx, cj, &plan); err != nil {
		return 0, err
	}
	if err := c.tell(ctx, cj, plan); err != nil {
		return 0, err
	}
	return plan.Again, nil
}

// gone are the active jobs of a cron job that are not there any more. One that the cache does not have it may not have yet.
func (c *Controller) gone(ctx context.Context, cj *batchv1.CronJob, jobs []*batchv1.Job) (map[types.UID]bool, error) {
	gone := map[types.UID]bool{}
	for _, r := range cj.Status.Active {
		gone[r.UID] = true
	}
	for _, j := range jobs {
		delete(gone, j.UID)
	}
	for _, r := range cj.Status.Active {
		if !gone[r.UID] {
			continue
		}
		live, err := c.config.Client.BatchV1().Jobs(cj.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && live.UID != r.UID:
		case err != nil:
			return nil, fmt.Errorf("job %s, which should be active: %w", r.Name, err)
		default:
			delete(gone, r.UID)
		}
	}
	return gone, nil
}

// act deletes and makes jobs as planned, and writes the one that it has made into the plan's status.
func (c *Controller) act(ctx context.Context, cj *batchv1.CronJob, plan *Plan) error {
	for _, j := range append(plan.Delete, plan.Replace...) {
		if err := c.delete(ctx, cj, j); err != nil {
			return err
		}
	}
	if plan.Start == nil {
		return nil
	}
	if err := failpoint.Hit("controllers/cronjob/create"); err != nil {
		return err
	}
	client := c.config.Client.BatchV1().Jobs(cj.Namespace)
	made, err := client.Create(ctx, plan.Start, metav1.CreateOptions{})
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		plan.Again = 0
		return nil
	case apierrors.IsAlreadyExists(err):
		there, getErr := client.Get(ctx, plan.Start.Name, metav1.GetOptions{})
		if getErr != nil {
			return fmt.Errorf("job %s, which exists: %w", plan.Start.Name, getErr)
		}
		if !metav1.IsControlledBy(there, cj) {
			plan.warn("FailedCreate", "Error creating job: %v", err)
			return nil
		}
		made = there
	case err != nil:
		c.config.Events.Eventf(cj, corev1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
		return fmt.Errorf("create job %s: %w", plan.Start.Name, err)
	default:
		c.config.Events.Eventf(cj, corev1.EventTypeNormal, "SuccessfulCreate", "Created job %v", made.Name)
	}
	c.loop.Unseen.Wrote(cache.MetaObjectToName(cj), c.jobs.GetIndexer(), made.ResourceVersion)
	plan.started(made, plan.For)
	return failpoint.Hit("controllers/cronjob/created")
}

// delete deletes a job. Its pods go after it.
func (c *Controller) delete(ctx context.Context, cj *batchv1.CronJob, j *batchv1.Job) error {
	if err := failpoint.Hit("controllers/cronjob/delete"); err != nil {
		return err
	}
	if obj, there, err := c.jobs.GetIndexer().GetByKey(cache.MetaObjectToName(j).String()); err == nil && there {
		if shown, ok := obj.(*batchv1.Job); ok && shown.UID == j.UID && shown.DeletionTimestamp != nil {
			return nil // it goes already, and no event tells of that again
		}
	}
	c.loop.Unseen.Goes(cache.MetaObjectToName(cj), j.UID)
	err := c.config.Client.BatchV1().Jobs(j.Namespace).Delete(ctx, j.Name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground), Preconditions: &metav1.Preconditions{UID: &j.UID},
	})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it, or the one that is meant, is gone
		c.loop.Unseen.Went(j.UID)
		return nil
	case err != nil:
		c.loop.Unseen.Went(j.UID)
		c.config.Events.Eventf(cj, corev1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
		return fmt.Errorf("delete job %s: %w", j.Name, err)
	}
	c.config.Events.Eventf(cj, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job %v", j.Name)
	return failpoint.Hit("controllers/cronjob/deleted")
}

// tell writes the status of a cron job, if it is another one, and tells of what has happened.
func (c *Controller) tell(ctx context.Context, cj *batchv1.CronJob, plan Plan) error {
	if !equality.Semantic.DeepEqual(plan.Status, cj.Status) {
		if err := failpoint.Hit("controllers/cronjob/tell"); err != nil {
			return err
		}
		told := cj.DeepCopy()
		told.Status = plan.Status
		written, err := c.config.Client.BatchV1().CronJobs(cj.Namespace).UpdateStatus(ctx, told, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err := c.loop.Told(written, err); err != nil {
			return err
		}
		if err := failpoint.Hit("controllers/cronjob/told"); err != nil {
			return err
		}
	}
	for _, e := range plan.Events {
		c.config.Events.Event(cj, e.Type, e.Reason, e.Message)
	}
	return nil
}
