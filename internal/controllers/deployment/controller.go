package deployment

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/workload"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/informer"
)

// workers is how many deployments are worked on at a time.
const workers = 5

// Config is what a Controller needs.
type Config struct {
	Client kubernetes.Interface
	// Deployments, Sets and Pods are watched by others, too; who made the Controller starts them.
	Deployments appsinformers.DeploymentInformer
	Sets        appsinformers.ReplicaSetInformer
	Pods        coreinformers.PodInformer
	Events      record.EventRecorder
	Log         *slog.Logger
}

// Controller moves the pods of deployments. See the package's documentation.
type Controller struct {
	config Config
	sets   cache.SharedIndexInformer
	pods   cache.SharedIndexInformer
	loop   *workload.Loop[*appsv1.Deployment]
	known  cache.DoneChecker // of pods
	now    func() time.Time
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (c *Controller, err error) {
	c = &Controller{config: config, sets: config.Sets.Informer(), pods: config.Pods.Informer(), now: time.Now}
	c.loop, err = workload.New(workload.Config[*appsv1.Deployment]{
		Kind: kind, Owners: config.Deployments.Informer(), Dependents: []cache.SharedIndexInformer{c.sets},
		Selector: func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector },
		Workers:  workers, Sync: c.sync, Log: config.Log,
	})
	if err != nil {
		return nil, err
	}
	if err := owned.Index(c.pods); err != nil {
		return nil, err
	}
	pods, err := c.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: c.podGone})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	c.known = pods.HasSyncedChecker()
	return c, nil
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx, c.known) }

// podGone has the deployment of a pod looked at: it may have waited for the last of its old pods.
func (c *Controller) podGone(obj any) {
	pod, ok := informer.Last[*corev1.Pod](obj)
	if !ok {
		return
	}
	of := metav1.GetControllerOfNoCopy(pod)
	if of == nil || of.Kind != "ReplicaSet" {
		return
	}
	set, err := c.config.Sets.Lister().ReplicaSets(pod.Namespace).Get(of.Name)
	if err != nil {
		return // its deployment hears of the replica set's end
	}
	if d := metav1.GetControllerOfNoCopy(set); d != nil && d.Kind == kind.Kind {
		c.loop.Look(cache.NewObjectName(pod.Namespace, d.Name))
	}
}

// sync does what is to be done for a deployment now.
func (c *Controller) sync(ctx context.Context, d *appsv1.Deployment) (again time.Duration, err error) {
	sets, err := c.claim(ctx, d)
	if err != nil {
		return 0, err
	}
	plan := Decide(State{Deployment: d, Sets: sets, Running: c.running, Now: c.now()})
	if err := c.act(ctx, d, plan); err != nil {
		return 0, err
	}
	return plan.Again, nil
}

// claim returns the replica sets of a deployment, after it has taken over and let go those that are to change hands.
func (c *Controller) claim(ctx context.Context, d *appsv1.Deployment) ([]*appsv1.ReplicaSet, error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector: %w", err)
	}
	all, err := owned.OfOrOrphans[*appsv1.ReplicaSet](c.sets, d, selector)
	if err != nil {
		return nil, err
	}
	client := c.config.Client.AppsV1()
	return owned.Claimer[*appsv1.ReplicaSet]{
		Kind: kind,
		Live: func(ctx context.Context) (metav1.Object, error) {
			return client.Deployments(d.Namespace).Get(ctx, d.Name, metav1.GetOptions{})
		},
		Patch: func(ctx context.Context, set string, of types.PatchType, data []byte) (*appsv1.ReplicaSet, error) {
			return client.ReplicaSets(d.Namespace).Patch(ctx, set, of, data, metav1.PatchOptions{})
		},
		Wrote: func(version string) { c.loop.Unseen.Wrote(cache.MetaObjectToName(d), c.sets.GetIndexer(), version) },
	}.Claim(ctx, d, owned.Claim(d, selector, all))
}

// running says whether a replica set has pods that have not ended.
func (c *Controller) running(set *appsv1.ReplicaSet) bool {
	pods, err := owned.Of[*corev1.Pod](c.pods, set.UID)
	if err != nil {
		return true
	}
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			return true
		}
	}
	return false
}

// act carries a plan out, and tells its status when that is done.
func (c *Controller) act(ctx context.Context, d *appsv1.Deployment, plan Plan) error {
	if plan.Create != nil {
		if made, err := c.create(ctx, d, plan.Create); err != nil || !made {
			return err
		}
	}
	for _, change := range plan.Change {
		if err := c.change(ctx, d, change); err != nil {
			return err
		}
	}
	for _, set := range plan.Delete {
		if err := failpoint.Hit("controllers/deployment/delete"); err != nil {
			return err
		}
		c.loop.Unseen.Goes(cache.MetaObjectToName(d), set.UID)
		err := c.config.Client.AppsV1().ReplicaSets(set.Namespace).Delete(ctx, set.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &set.UID, ResourceVersion: &set.ResourceVersion},
		})
		if err != nil {
			c.loop.Unseen.Went(set.UID)
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("delete replica set %s: %w", set.Name, err)
			}
		}
	}
	return c.tell(ctx, d, plan.Status)
}

// create makes the replica set of the template. Its name follows from the template, so whoever has it already either is that replica set or has the
// name by chance: then the next one gets another name. false: it is not there, and the deployment is looked at again, if it is to be.
func (c *Controller) create(ctx context.Context, d *appsv1.Deployment, set *appsv1.ReplicaSet) (bool, error) {
	if err := failpoint.Hit("controllers/deployment/create"); err != nil {
		return false, err
	}
	made, err := c.config.Client.AppsV1().ReplicaSets(d.Namespace).Create(ctx, set, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		there, getErr := c.config.Client.AppsV1().ReplicaSets(d.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
		if getErr != nil {
			return false, fmt.Errorf("replica set %s, which exists: %w", set.Name, getErr)
		}
		c.loop.Unseen.Wrote(cache.MetaObjectToName(d), c.sets.GetIndexer(), there.ResourceVersion)
		if metav1.IsControlledBy(there, d) && sameTemplate(&there.Spec.Template, &d.Spec.Template) {
			return true, nil
		}
		d = d.DeepCopy()
		if d.Status.CollisionCount == nil {
			d.Status.CollisionCount = new(int32)
		}
		*d.Status.CollisionCount++
		c.config.Log.Info("another replica set has the name that a deployment's new one would have had; it gets another one",
			"namespace", d.Namespace, "deployment", d.Name, "name", set.Name)
		return false, c.write(ctx, d)
	case err != nil && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, nil
	case err != nil:
		message := fmt.Sprintf("Failed to create new replica set %q: %v", set.Name, err)
		c.config.Events.Event(d, corev1.EventTypeWarning, reasonCreateFailed, message)
		if told := failed(d, message, c.now()); told != d {
			if err := c.write(ctx, told); err != nil {
				return false, err
			}
		}
		return false, fmt.Errorf("create replica set %s: %w", set.Name, err)
	}
	c.loop.Unseen.Wrote(cache.MetaObjectToName(d), c.sets.GetIndexer(), made.ResourceVersion)
	if *made.Spec.Replicas > 0 {
		c.scaled(d, "up", made.Name, 0, *made.Spec.Replicas)
	}
	return true, failpoint.Hit("controllers/deployment/created")
}

// change scales a replica set, or has it bear other annotations.
func (c *Controller) change(ctx context.Context, d *appsv1.Deployment, change Change) error {
	if err := failpoint.Hit("controllers/deployment/change"); err != nil {
		return err
	}
	changed, err := c.config.Client.AppsV1().ReplicaSets(d.Namespace).Update(ctx, change.To, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("change replica set %s: %w", change.To.Name, err)
	}
	c.loop.Unseen.Wrote(cache.MetaObjectToName(d), c.sets.GetIndexer(), changed.ResourceVersion)
	switch to := *change.To.Spec.Replicas; {
	case to > change.From:
		c.scaled(d, "up", change.To.Name, change.From, to)
	case to < change.From:
		c.scaled(d, "down", change.To.Name, change.From, to)
	}
	return failpoint.Hit("controllers/deployment/changed")
}

func (c *Controller) scaled(d *appsv1.Deployment, direction, set string, from, to int32) {
	c.config.Events.Eventf(d, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d", direction, set, from, to)
}

// tell writes a deployment's status, if it is another one.
func (c *Controller) tell(ctx context.Context, d, told *appsv1.Deployment) error {
	if told == d {
		return nil
	}
	if err := failpoint.Hit("controllers/deployment/tell"); err != nil {
		return err
	}
	return c.write(ctx, told)
}

func (c *Controller) write(ctx context.Context, d *appsv1.Deployment) error {
	return c.loop.Told(c.config.Client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{}))
}
