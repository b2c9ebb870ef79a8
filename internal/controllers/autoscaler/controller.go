package autoscaler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	autoscalinginformers "k8s.io/client-go/informers/autoscaling/v2"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/queue"
)

const (
	// workers is how many autoscalers are worked on at a time. Each may wait for metrics.
	workers = 5
	// period is after which time an autoscaler is looked at again.
	period = 15 * time.Second
	// behind is after which time one is whose writes the cache does not show.
	behind = time.Second
)

// Scales reads and writes how many pods objects want.
type Scales interface {
	Get(ctx context.Context, of schema.GroupKind, namespace, name string) (*autoscalingv1.Scale, schema.GroupResource, error)
	// Update writes a scale that was read. Where it has changed meanwhile that is a conflict.
	Update(ctx context.Context, of schema.GroupResource, to *autoscalingv1.Scale) error
}

// Metrics tells what a metric says. pods are those of the autoscaler.
type Metrics interface {
	Observe(ctx context.Context, namespace string, pods labels.Selector, spec *autoscalingv2.MetricSpec) Observation
}

// Config is what a Controller needs.
type Config struct {
	// Client has the right to write horizontalpodautoscalers/status.
	Client kubernetes.Interface
	// Autoscalers and Pods are watched by others, too; who made the Controller starts them.
	Autoscalers autoscalinginformers.HorizontalPodAutoscalerInformer
	Pods        coreinformers.PodInformer
	Scales      Scales
	Metrics     Metrics
	Events      record.EventRecorder
	// Period is after which time an autoscaler is looked at again; 0: 15 s.
	Period time.Duration
	Log    *slog.Logger
}

// Controller scales. See the package's documentation.
type Controller struct {
	config Config
	cache  owned.Versioned
	unseen owned.Unseen
	queue  *queue.Queue[cache.ObjectName]
	known  []cache.DoneChecker
	now    func() time.Time

	mu sync.Mutex // guards what follows
	// memories are of the autoscalers that were looked at.
	memories map[cache.ObjectName]memory
}

// memory is what is known of an autoscaler beside the API, as long as it is the same one and has the same target.
type memory struct {
	uid     types.UID
	target  autoscalingv2.CrossVersionObjectReference
	history History
	// selector is that of its pods, as it last was; nil: not known yet.
	selector labels.Selector
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{
		config: config, cache: config.Autoscalers.Informer().GetIndexer(), queue: queue.New[cache.ObjectName](), now: time.Now,
		memories: map[cache.ObjectName]memory{},
	}
	c.config.Log = cmp.Or(config.Log, slog.New(slog.DiscardHandler))
	c.config.Period = cmp.Or(config.Period, period)
	changed, err := config.Autoscalers.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.look,
		UpdateFunc: func(old, obj any) {
			// Most changes are of the status.
			before, ok := old.(*autoscalingv2.HorizontalPodAutoscaler)
			if now, is := obj.(*autoscalingv2.HorizontalPodAutoscaler); !ok || !is || before.UID != now.UID || !equality.Semantic.DeepEqual(before.Spec, now.Spec) {
				c.look(obj)
			}
		},
		DeleteFunc: c.look,
	})
	if err != nil {
		return nil, fmt.Errorf("watch horizontal pod autoscalers: %w", err)
	}
	pods, err := config.Pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{}) // only to know when all are known
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	c.known = []cache.DoneChecker{changed.HasSyncedChecker(), pods.HasSyncedChecker()}
	return c, nil
}

func (c *Controller) look(obj any) {
	if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		c.queue.Add(name)
	}
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error {
	cache.WaitFor(ctx, "", c.known...)
	c.queue.Run(ctx, workers, c.sync, func(name cache.ObjectName, err error) {
		c.config.Log.Warn("an autoscaler could not be looked at, trying again", "namespace", name.Namespace, "name", name.Name, "error", err)
	})
	return nil
}

// sync looks at an autoscaler, and sees to it that it is looked at again.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) error {
	a, err := c.config.Autoscalers.Lister().HorizontalPodAutoscalers(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		c.unseen.Forget(name)
		c.mu.Lock()
		delete(c.memories, name)
		c.mu.Unlock()
		return nil
	}
	if err != nil {
		return err
	}
	if !c.unseen.Nothing(name) {
		c.queue.AddAfter(name, behind)
		return nil
	}
	defer c.queue.AddAfter(name, c.config.Period)
	c.remember(name, func(m *memory) {
		if m.uid != a.UID || m.target != a.Spec.ScaleTargetRef {
			*m = memory{uid: a.UID, target: a.Spec.ScaleTargetRef}
		}
	})
	if err := c.reconcile(ctx, name, a); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
		// It has its event, and its turn in a while: what an autoscaler recommends is a matter of time, so nothing is tried in between.
		c.config.Log.Info("an autoscaler could not do what it is for", "namespace", name.Namespace, "name", name.Name, "error", err)
	}
	return nil
}

// reconcile does what an autoscaler is to do now.
func (c *Controller) reconcile(ctx context.Context, name cache.ObjectName, a *autoscalingv2.HorizontalPodAutoscaler) error {
	scale, resource, err := c.scaleOf(ctx, a)
	if err != nil {
		told, event := Unscaled(a, err, c.now())
		c.tell(a, event)
		return errors.Join(err, c.write(ctx, a, told))
	}
	look, err := c.observe(ctx, name, a, scale)
	if err != nil {
		return err
	}
	plan := Decide(look)
	var failed error
	if plan.Scale != nil {
		failed = c.scale(ctx, a, resource, scale, plan.Scale)
		plan = Scaled(plan, failed, c.now())
		if failed == nil {
			c.config.Log.Info("scaled", "namespace", name.Namespace, "autoscaler", name.Name, "target", a.Spec.ScaleTargetRef.Name,
				"from", plan.Scale.From, "to", plan.Scale.To, "why", plan.Scale.Why)
		}
	}
	c.remember(name, func(m *memory) { m.history = plan.History })
	c.tell(a, plan.Events...)
	return errors.Join(failed, c.write(ctx, a, plan.Told))
}

// scaleOf is the scale of an autoscaler's target.
func (c *Controller) scaleOf(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv1.Scale, schema.GroupResource, error) {
	ref := a.Spec.ScaleTargetRef
	group, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, schema.GroupResource{}, err
	}
	return c.config.Scales.Get(ctx, schema.GroupKind{Group: group.Group, Kind: ref.Kind}, a.Namespace, ref.Name)
}

// observe finds out what an autoscaler decides by.
func (c *Controller) observe(ctx context.Context, name cache.ObjectName, a *autoscalingv2.HorizontalPodAutoscaler, scale *autoscalingv1.Scale) (Look, error) {
	look := Look{Autoscaler: a, Scale: scale, History: c.remember(name, nil).history, Now: c.now()}
	if _, decided := Bounds(&a.Spec, scale.Spec.Replicas); decided {
		return look, nil
	}
	selector, err := labels.Parse(scale.Status.Selector)
	if err != nil || scale.Status.Selector == "" {
		return look, nil // Decide says so
	}
	c.remember(name, func(m *memory) { m.selector = selector })
	if look.Pods, err = c.config.Pods.Lister().Pods(a.Namespace).List(selector); err != nil {
		return look, err
	}
	if look.Rivals = c.rivals(a.Namespace, look.Pods); len(look.Rivals) > 1 {
		return look, nil
	}
	look.Observed = make([]Observation, len(a.Spec.Metrics))
	for i := range a.Spec.Metrics {
		look.Observed[i] = c.config.Metrics.Observe(ctx, a.Namespace, selector, &a.Spec.Metrics[i])
	}
	look.Now = c.now() // metrics take their time
	return look, nil
}

// rivals are the autoscalers that one of the pods is scaled by.
func (c *Controller) rivals(namespace string, pods []*corev1.Pod) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, m := range c.memories {
		if name.Namespace == namespace && m.selector != nil &&
			slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return m.selector.Matches(labels.Set(pod.Labels)) }) {
			names = append(names, name.String())
		}
	}
	slices.Sort(names)
	return names
}

// remember is the memory of an autoscaler, after change has changed it.
func (c *Controller) remember(name cache.ObjectName, change func(*memory)) memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.memories[name]
	if change != nil {
		change(&m)
		c.memories[name] = m
	}
	return m
}

// scale has the target want another number of pods, also where something else of it has changed meanwhile. Where that is the number somebody else has had a say.
func (c *Controller) scale(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler, resource schema.GroupResource, scale *autoscalingv1.Scale, step *Step) error {
	if err := failpoint.Hit("controllers/autoscaler/scale"); err != nil {
		return err
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		scale.Spec.Replicas = step.To
		conflict := c.config.Scales.Update(ctx, resource, scale)
		if !apierrors.IsConflict(conflict) {
			return conflict
		}
		newer, _, err := c.scaleOf(ctx, a)
		if err != nil {
			return err
		}
		if newer.UID != scale.UID || newer.Spec.Replicas != step.From {
			return fmt.Errorf("it wants %d pods by now, not %d", newer.Spec.Replicas, step.From)
		}
		scale = newer
		return conflict
	})
	if err != nil {
		return err
	}
	return failpoint.Hit("controllers/autoscaler/scaled")
}

func (c *Controller) tell(a *autoscalingv2.HorizontalPodAutoscaler, events ...Event) {
	for _, e := range events {
		c.config.Events.Event(a, e.Type, e.Reason, e.Message)
	}
}

// write writes an autoscaler's status, if it is another one.
func (c *Controller) write(ctx context.Context, a, told *autoscalingv2.HorizontalPodAutoscaler) error {
	if equality.Semantic.DeepEqual(a.Status, told.Status) {
		return nil
	}
	if err := failpoint.Hit("controllers/autoscaler/tell"); err != nil {
		return err
	}
	written, err := c.config.Client.AutoscalingV2().HorizontalPodAutoscalers(a.Namespace).UpdateStatus(ctx, told, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		if !apierrors.IsConflict(err) {
			c.tell(a, warning("FailedUpdateStatus", err.Error()))
		}
		return fmt.Errorf("status: %w", err)
	}
	c.unseen.Wrote(cache.MetaObjectToName(a), c.cache, written.ResourceVersion)
	return nil
}
