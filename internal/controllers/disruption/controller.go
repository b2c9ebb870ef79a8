package disruption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	policyinformers "k8s.io/client-go/informers/policy/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/queue"
	"monopod.dev/monopod/internal/pods"
)

const (
	// workers is how many budgets, and how many pods, are worked on at a time.
	workers = 2
	// behind is after which time a budget is looked at again whose writes the cache does not show. The event that shows them comes long before.
	behind = time.Second
)

// Config is what a Controller needs.
type Config struct {
	// Client has the right to write poddisruptionbudgets/status and pods/status.
	Client kubernetes.Interface
	// Budgets, Pods and those who own pods are watched by others, too; who made the Controller starts them.
	Budgets     policyinformers.PodDisruptionBudgetInformer
	Pods        coreinformers.PodInformer
	Deployments appsinformers.DeploymentInformer
	Sets        appsinformers.ReplicaSetInformer
	Stateful    appsinformers.StatefulSetInformer
	Controllers coreinformers.ReplicationControllerInformer
	// Scales has what owners of other kinds want.
	Scales Scales
	Events record.EventRecorder
	Log    *slog.Logger
}

// Controller keeps the status of budgets. See the package's documentation.
type Controller struct {
	config Config
	owners owners
	asked  asked
	// selectors are the budgets by what they select, pods those by their labels: of one that changes not all are looked at.
	selectors *owned.Selectors[*policyv1.PodDisruptionBudget]
	pods      *owned.Labelled[*corev1.Pod]

	cache   owned.Versioned
	unseen  owned.Unseen
	budgets *queue.Queue[cache.ObjectName]
	// marked are pods with the condition DisruptionTarget.
	marked *queue.Queue[cache.ObjectName]
	known  []cache.DoneChecker
	now    func() time.Time
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{
		config: config, cache: config.Budgets.Informer().GetIndexer(), now: time.Now,
		owners: owners{
			deployments: config.Deployments.Lister(), sets: config.Sets.Lister(), stateful: config.Stateful.Lister(), controllers: config.Controllers.Lister(),
			scales: config.Scales,
		},
		selectors: owned.NewSelectors(func(b *policyv1.PodDisruptionBudget) *metav1.LabelSelector { return b.Spec.Selector }), pods: owned.NewLabelled[*corev1.Pod](),
		budgets: queue.New[cache.ObjectName](), marked: queue.New[cache.ObjectName](),
	}
	c.config.Log = cmp.Or(config.Log, slog.New(slog.DiscardHandler))
	owners := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.ownerChanged(nil, obj) },
		UpdateFunc: c.ownerChanged,
		DeleteFunc: func(obj any) { c.ownerChanged(nil, obj) },
	}
	for _, watched := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{config.Budgets.Informer(), c.selectors.Keep(owned.Each(c.budgets.Add))},
		{config.Pods.Informer(), c.pods.Keep(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { c.podChanged(nil, obj.(*corev1.Pod)) },
			UpdateFunc: func(old, obj any) { c.podChanged(old.(*corev1.Pod), obj.(*corev1.Pod)) },
			DeleteFunc: c.podGone,
		})},
		{config.Deployments.Informer(), owners}, {config.Sets.Informer(), owners}, {config.Stateful.Informer(), owners}, {config.Controllers.Informer(), owners},
	} {
		registration, err := watched.informer.AddEventHandler(watched.handler)
		if err != nil {
			return nil, fmt.Errorf("watch budgets, pods and their owners: %w", err)
		}
		c.known = append(c.known, registration.HasSyncedChecker())
	}
	return c, nil
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error {
	cache.WaitFor(ctx, "", c.known...)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.marked.Run(ctx, workers, c.unmark, c.failed("condition DisruptionTarget of a pod"))
	}()
	c.budgets.Run(ctx, workers, c.sync, c.failed("status of a budget"))
	<-ended
	return nil
}

func (c *Controller) failed(what string) func(cache.ObjectName, error) {
	return func(name cache.ObjectName, err error) {
		if !apierrors.IsConflict(err) {
			c.config.Log.Warn("what is told of evictions is not what it should be, trying again", "what", what, "namespace", name.Namespace, "name", name.Name, "error", err)
		}
	}
}

// podChanged has the budgets looked at that a pod belongs to, or did.
func (c *Controller) podChanged(old, pod *corev1.Pod) {
	if marked, after := stale(pod, c.now()); marked {
		c.marked.AddAfter(cache.MetaObjectToName(pod), after)
	}
	if old != nil && old.UID != pod.UID { // deleted and made again under the same name between two looks
		c.podGone(old)
		old = nil
	}
	if old == nil {
		c.look(pod, true)
		return
	}
	relabelled := !maps.Equal(old.Labels, pod.Labels)
	if relabelled {
		c.look(old, false)
	}
	if relabelled || counts(old) != counts(pod) {
		c.look(pod, relabelled)
	}
}

// counts is what of a pod a budget's status depends on, beside its labels.
func counts(pod *corev1.Pod) (of struct {
	ready, leaves bool
	owner         string
}) {
	of.ready, of.leaves = pods.IsTrue(&pod.Status, corev1.PodReady), pod.DeletionTimestamp != nil
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		of.owner = string(ref.UID)
	}
	return of
}

func (c *Controller) podGone(obj any) {
	if pod, ok := informer.Last[*corev1.Pod](obj); ok {
		c.look(pod, false)
	}
}

// look has the budgets of a pod looked at. tell: that they are several is said, too.
func (c *Controller) look(pod *corev1.Pod, tell bool) {
	var names []string
	for _, budget := range c.selectors.About(pod.Namespace, pod.Labels) {
		c.budgets.Add(budget)
		names = append(names, budget.Name)
	}
	if tell && len(names) > 1 {
		c.config.Events.Eventf(pod, corev1.EventTypeWarning, "MultiplePodDisruptionBudgets",
			"Pod %q/%q matches multiple PodDisruptionBudgets, which the eviction subresource does not support: %s", pod.Namespace, pod.Name, firstOf(names))
	}
}

// ownerChanged has the budgets looked at that may depend on what an owner of pods wants.
func (c *Controller) ownerChanged(old, now any) {
	object, ok := informer.Last[metav1.Object](now)
	if !ok || old != nil && wants(old) == wants(object) {
		return
	}
	for _, budget := range c.asked.budgets(object.GetUID()) {
		c.budgets.Add(budget)
	}
	if old, ok := old.(metav1.Object); ok && old.GetUID() != object.GetUID() { // deleted and made again under the same name between two looks
		for _, budget := range c.asked.budgets(old.GetUID()) {
			c.budgets.Add(budget)
		}
	}
}

// firstOf are the first names of a list, and how many more there are: an event is no place for thousands.
func firstOf(names []string) string {
	const few = 20
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// sync does what is to be done about a budget.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) error {
	budget, err := c.config.Budgets.Lister().PodDisruptionBudgets(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		c.unseen.Forget(name)
		c.asked.settle(name, nil)
		return nil
	}
	if err != nil {
		return err
	}
	if !c.unseen.Nothing(name) {
		c.budgets.AddAfter(name, behind)
		return nil
	}
	all, plan, err := c.decide(ctx, budget)
	if err != nil {
		told := Failed(budget, err)
		if told != nil {
			if err := c.tell(ctx, told); err != nil {
				return err
			}
		}
		if errors.Is(err, errNoScale) || errors.Is(err, errUnreadable) {
			return nil // whoever changes it is heard of
		}
		return err
	}
	for _, pod := range plan.NotDeleted {
		c.config.Events.Eventf(pod, corev1.EventTypeWarning, "NotDeleted", "Pod was expected by PDB %s/%s to be deleted but it wasn't", budget.Namespace, budget.Name)
	}
	if plan.Budget != nil {
		if len(all) == 0 {
			c.config.Events.Event(budget, corev1.EventTypeNormal, "NoPods", "No matching pods found")
		}
		if err := c.tell(ctx, plan.Budget); err != nil {
			return err
		}
	}
	if plan.Again > 0 {
		c.budgets.AddAfter(name, plan.Again)
	}
	return nil
}

// errUnreadable is that a budget says something that cannot be understood.
var errUnreadable = errors.New("unreadable")

// decide says what is to be done about a budget, and which its pods are. Of what it could not find out the budget's events tell.
func (c *Controller) decide(ctx context.Context, budget *policyv1.PodDisruptionBudget) ([]*corev1.Pod, Plan, error) {
	warn := func(reason, format string, args ...any) {
		c.config.Events.Eventf(budget, corev1.EventTypeWarning, reason, format, args...)
	}
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		warn("NoPods", "Failed to get pods: %v", err)
		return nil, Plan{}, errors.Join(err, errUnreadable)
	}
	all := c.pods.Selected(budget.Namespace, budget.Spec.Selector)
	var expected int32
	var unmanaged []string
	name, owners := cache.MetaObjectToName(budget), map[types.UID]struct{}{}
	defer func() { c.asked.settle(name, owners) }()
	if needsScales(budget) {
		expected, unmanaged, err = c.owners.expected(ctx, all, func(owner types.UID) {
			owners[owner] = struct{}{}
			c.asked.note(name, owner)
		})
		if err != nil {
			warn("CalculateExpectedPodCountFailed", "Failed to calculate the number of expected pods: %v", err)
			return nil, Plan{}, err
		}
	}
	plan, err := Decide(budget, all, expected, c.now())
	if err != nil {
		warn("CalculateExpectedPodCountFailed", "Failed to calculate the number of expected pods: %v", err)
		return nil, Plan{}, errors.Join(err, errUnreadable)
	}
	if len(unmanaged) > 0 && plan.Budget != nil {
		warn("UnmanagedPods", "Pods selected by this PodDisruptionBudget (selector: %v) were found to be unmanaged: %s. As they have no controller that says how many there should "+
			"be, they do not count. To account for these pods set \".spec.minAvailable\" of the PDB to an integer value.", selector, firstOf(unmanaged))
	}
	return all, plan, nil
}

// tell writes a budget's status.
func (c *Controller) tell(ctx context.Context, budget *policyv1.PodDisruptionBudget) error {
	if err := failpoint.Hit("controllers/disruption/tell"); err != nil {
		return err
	}
	written, err := c.config.Client.PolicyV1().PodDisruptionBudgets(budget.Namespace).UpdateStatus(ctx, budget, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	c.unseen.Wrote(cache.MetaObjectToName(budget), c.cache, written.ResourceVersion)
	return failpoint.Hit("controllers/disruption/told")
}

// unmark takes the condition DisruptionTarget from a pod that nobody deletes.
func (c *Controller) unmark(ctx context.Context, name cache.ObjectName) error {
	pod, err := c.config.Pods.Lister().Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	marked, after := stale(pod, c.now())
	if !marked {
		return nil
	}
	if after > 0 {
		c.marked.AddAfter(name, after)
		return nil
	}
	if err := failpoint.Hit("controllers/disruption/unmark"); err != nil {
		return err
	}
	pod = pod.DeepCopy()
	pods.SetCondition(&pod.Status, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, ObservedGeneration: pod.Generation}, c.now())
	if _, err := c.config.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("condition %s: %w", corev1.DisruptionTarget, err)
	}
	return nil
}
