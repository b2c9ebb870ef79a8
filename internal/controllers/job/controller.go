package job

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	batchinformers "k8s.io/client-go/informers/batch/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/workload"
	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/queue"
)

var kind = batchv1.SchemeGroupVersion.WithKind("Job")

const (
	// workers is how many jobs, and how many pods that have lost theirs, are worked on at a time.
	workers = 5
	// behind is after which time a job is looked at again of whose pods the cache does not show that a finalizer was taken off. The event that shows it comes long before.
	behind = time.Second
	// longEnough is for how long a job waits for the cache to show that finalizers were taken off.
	longEnough = time.Minute
)

// Config is what a Controller needs.
type Config struct {
	Client kubernetes.Interface
	// Jobs and Pods are watched by others, too; who made the Controller starts them.
	Jobs   batchinformers.JobInformer
	Pods   coreinformers.PodInformer
	Events record.EventRecorder
	// Pace is that of all controllers that make pods; nil: as fast as they can be made.
	Pace *owned.Pace
	Log  *slog.Logger
}

// Controller runs the pods of jobs. See the package's documentation.
type Controller struct {
	config  Config
	jobs    batchlisters.JobLister
	pods    cache.SharedIndexInformer
	control owned.Pods
	loop    *workload.Loop[*batchv1.Job]
	// orphans are pods that may have a finalizer and no job that would take it off.
	orphans *queue.Queue[cache.ObjectName]
	known   cache.DoneChecker // of pods that have lost theirs
	now     func() time.Time

	mu sync.Mutex
	// freed are the pods whose finalizer was taken off, and when, until the cache shows it.
	freed map[types.UID]time.Time
	// histories are those of jobs that run.
	histories map[cache.ObjectName]history
}

// history is how a job of a UID has failed.
type history struct {
	of       types.UID
	failures Failures
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{
		config: config, jobs: config.Jobs.Lister(), pods: config.Pods.Informer(), orphans: queue.New[cache.ObjectName](), now: time.Now,
		freed: map[types.UID]time.Time{}, histories: map[cache.ObjectName]history{},
	}
	// The pods' handler comes first, so that freed is right when an owner is looked at.
	freed, err := c.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.podChanged, DeleteFunc: c.podGone, UpdateFunc: func(old, now any) {
			if was, ok := old.(*corev1.Pod); ok && was.UID != now.(*corev1.Pod).UID {
				c.podGone(was)
			}
			c.podChanged(now)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	c.known = freed.HasSyncedChecker()
	c.loop, err = workload.New(workload.Config[*batchv1.Job]{
		Kind: kind, Owners: config.Jobs.Informer(), Dependents: []cache.SharedIndexInformer{c.pods},
		Selector: func(j *batchv1.Job) *metav1.LabelSelector { return j.Spec.Selector },
		Workers:  workers, Sync: c.sync, Gone: c.forget, Beside: c.releaseOrphans, Log: config.Log,
		Seen: func(j *batchv1.Job, gone bool) {
			if gone || Finished(j) != nil {
				c.abandon(j)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	c.control = owned.Pods{
		Client: config.Client, Kind: kind, Finalizer: batchv1.JobTrackingFinalizer, Events: config.Events, Cache: c.pods.GetIndexer(), Unseen: &c.loop.Unseen,
	}
	return c, nil
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx, c.known) }

// releaseOrphans takes finalizers off pods that have lost their jobs, until ctx ends.
func (c *Controller) releaseOrphans(ctx context.Context) {
	c.orphans.Run(ctx, workers, c.release, func(name cache.ObjectName, err error) {
		c.config.Log.Warn("a pod without a job keeps the finalizer of jobs, trying again", "namespace", name.Namespace, "pod", name.Name, "error", err)
	})
}

// abandon has the pods of a job that has ended looked at that still have the finalizer.
func (c *Controller) abandon(j *batchv1.Job) {
	pods, err := owned.Of[*corev1.Pod](c.pods, j.UID)
	if err != nil {
		c.config.Log.Error("the pods of a job that has ended cannot be told", "error", err)
	}
	for _, pod := range pods {
		if tracked(pod) {
			c.orphans.Add(cache.MetaObjectToName(pod))
		}
	}
}

func (c *Controller) podChanged(obj any) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	if tracked(pod) {
		if !c.hasJob(pod) {
			c.orphans.Add(cache.MetaObjectToName(pod))
		}
		return
	}
	c.shown(pod.UID)
}

func (c *Controller) podGone(obj any) {
	if pod, ok := informer.Last[*corev1.Pod](obj); ok {
		c.shown(pod.UID)
	}
}

func (c *Controller) shown(pod types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.freed, pod)
}

// hasJob says whether the cache has a job that takes care of a pod's finalizer, or whose pods are somebody else's care.
func (c *Controller) hasJob(pod *corev1.Pod) bool {
	of := metav1.GetControllerOfNoCopy(pod)
	if of == nil {
		return false
	}
	if of.Kind != kind.Kind || of.APIVersion != batchv1.SchemeGroupVersion.String() {
		return true
	}
	j, err := c.jobs.Jobs(pod.Namespace).Get(of.Name)
	return err == nil && j.UID == of.UID && keepsFinalizers(j)
}

// keepsFinalizers: the pods of a job have a finalizer that its controller takes off.
func keepsFinalizers(j *batchv1.Job) bool { return Finished(j) == nil || !ours(j) }

// ours says whether a job is for this controller to manage.
func ours(j *batchv1.Job) bool {
	return j.Spec.ManagedBy == nil || *j.Spec.ManagedBy == batchv1.JobControllerName
}
