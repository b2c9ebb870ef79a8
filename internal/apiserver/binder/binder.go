package binder

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

// component is the binder's name in events.
const component = "monopod-binder"

// byNode is the index of pods by the node that they are bound to; unbound pods are under "".
const byNode = "spec.nodeName"

// Config is what a Binder needs.
type Config struct {
	// Kube reaches the API server with the right to watch pods and nodes, to create pods/binding and events, and to
	// patch pods/status.
	Kube *rest.Config
	// Log; nil is slog.Default().
	Log *slog.Logger
}

// Binder binds pods to nodes. See the package's documentation.
type Binder struct {
	config Config
	log    *slog.Logger

	client   kubernetes.Interface
	pods     cache.SharedIndexInformer
	nodes    listers.NodeLister
	queue    workqueue.TypedRateLimitingInterface[types.NamespacedName]
	recorder record.EventRecorder
	assumed  assumed
}

// New returns a Binder that does nothing until it is run.
func New(config Config) *Binder {
	return &Binder{config: config, log: cmp.Or(config.Log, slog.New(slog.DiscardHandler))}
}

// Run binds pods until ctx ends, which is no error. A Binder is run once.
func (b *Binder) Run(ctx context.Context) error {
	// Binding is on the way of every pod to its start: no client-side rate limit, and the compact wire format.
	config := rest.CopyConfig(b.config.Kube)
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config = rest.AddUserAgent(config, component)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("binder: client of %s: %w", config.Host, err)
	}
	b.client = client

	// The worker tells of its last pod when ctx has ended already, so the broadcaster ends after the worker instead.
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	b.recorder = broadcaster.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: component})

	b.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())
	factories, err := b.watch(ctx)
	if err != nil {
		return err
	}
	var worker sync.WaitGroup
	worker.Go(func() {
		for b.next(ctx) {
		}
	})
	<-ctx.Done()
	b.queue.ShutDown()
	worker.Wait()
	for _, f := range factories {
		f.Shutdown()
	}
	return nil
}

// watch starts the informers and waits until they know all pods and nodes: a decision before that would count
// resources free that are not.
func (b *Binder) watch(ctx context.Context) ([]informers.SharedInformerFactory, error) {
	// A pod that has ended holds no resources. The selector turns its end into a deletion from this watch.
	alive := fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)))
	podFactory := informers.NewSharedInformerFactoryWithOptions(b.client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = alive.String() }))
	nodeFactory := informers.NewSharedInformerFactory(b.client, 0)

	b.pods = podFactory.Core().V1().Pods().Informer()
	b.nodes = nodeFactory.Core().V1().Nodes().Lister()
	err := b.pods.AddIndexers(cache.Indexers{byNode: func(obj any) ([]string, error) {
		return []string{obj.(*corev1.Pod).Spec.NodeName}, nil
	}})
	if err != nil {
		return nil, fmt.Errorf("binder: %w", err)
	}
	_, podErr := b.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { b.podChanged(nil, obj.(*corev1.Pod)) },
		UpdateFunc: func(old, obj any) { b.podChanged(old.(*corev1.Pod), obj.(*corev1.Pod)) },
		DeleteFunc: b.podGone,
	})
	_, nodeErr := nodeFactory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { b.retryWaiting() },
		UpdateFunc: func(old, obj any) { b.nodeChanged(old.(*corev1.Node), obj.(*corev1.Node)) },
		DeleteFunc: func(any) { b.retryWaiting() },
	})
	if err := errors.Join(podErr, nodeErr); err != nil {
		return nil, fmt.Errorf("binder: %w", err)
	}
	factories := []informers.SharedInformerFactory{podFactory, nodeFactory}
	for _, f := range factories {
		f.Start(ctx.Done())
	}
	for _, f := range factories {
		f.WaitForCacheSync(ctx.Done()) // ends early only when ctx does
	}
	return factories, nil
}

// podChanged queues a pod that waits for a node, and looks at the others again when resources may have become free.
func (b *Binder) podChanged(old, pod *corev1.Pod) {
	if old != nil && old.UID != pod.UID { // deleted and made again under the same name between two looks
		b.podGone(old)
		old = nil
	}
	if isOurs(pod) {
		if old == nil || !apiequality.Semantic.DeepEqual(old.Spec, pod.Spec) {
			b.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
		return
	}
	if pod.Spec.NodeName != "" {
		b.assumed.forget(pod.UID)
	}
}

func (b *Binder) podGone(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	b.assumed.forget(pod.UID)
	b.retryWaiting()
}

func (b *Binder) nodeChanged(old, node *corev1.Node) {
	// Most changes of a node are heartbeats, which change no decision.
	if isReady(old) == isReady(node) &&
		apiequality.Semantic.DeepEqual(old.Spec, node.Spec) &&
		apiequality.Semantic.DeepEqual(old.Labels, node.Labels) &&
		apiequality.Semantic.DeepEqual(old.Status.Allocatable, node.Status.Allocatable) {
		return
	}
	b.retryWaiting()
}

// retryWaiting queues all pods that wait for a node, the oldest first.
func (b *Binder) retryWaiting() {
	waiting := slices.DeleteFunc(b.podsOn(""), func(p *corev1.Pod) bool { return !isOurs(p) })
	slices.SortStableFunc(waiting, func(x, y *corev1.Pod) int {
		return x.CreationTimestamp.Compare(y.CreationTimestamp.Time)
	})
	for _, pod := range waiting {
		b.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
}

// podsOn returns the pods that the watch shows on a node. The slice is the caller's.
func (b *Binder) podsOn(node string) []*corev1.Pod {
	objs, err := b.pods.GetIndexer().ByIndex(byNode, node)
	if err != nil {
		panic(err) //nolint:forbidigo // the index does not exist: a fault of this package
	}
	pods := make([]*corev1.Pod, 0, len(objs))
	for _, obj := range objs {
		pods = append(pods, obj.(*corev1.Pod))
	}
	return pods
}

// isOurs reports whether a pod waits for the binder.
func isOurs(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && pod.Spec.SchedulerName == corev1.DefaultSchedulerName
}

// next works on one pod of the queue. It is called by one goroutine, so decisions are made one after the other.
func (b *Binder) next(ctx context.Context) bool {
	key, shutdown := b.queue.Get()
	if shutdown {
		return false
	}
	defer b.queue.Done(key)
	switch err := b.sync(ctx, key); {
	case ctx.Err() != nil:
		return false
	case err != nil:
		b.log.Warn("cannot bind pod, trying again", "namespace", key.Namespace, "pod", key.Name, "error", err)
		b.queue.AddRateLimited(key)
	default:
		b.queue.Forget(key)
	}
	return true
}

func (b *Binder) sync(ctx context.Context, key types.NamespacedName) error {
	obj, found, err := b.pods.GetStore().GetByKey(key.String())
	if err != nil || !found {
		return err
	}
	pod := obj.(*corev1.Pod)
	if !isOurs(pod) || b.assumed.has(pod.UID) {
		return nil
	}
	nodes, err := b.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	node, reasons := b.choose(pod, nodes)
	if node == "" {
		return b.explainWaiting(ctx, pod, explain(reasons))
	}
	return b.bind(ctx, pod, node)
}

// choose returns the node with the fewest pods among those where pod fits, or why it fits on none.
func (b *Binder) choose(pod *corev1.Pod, nodes []*corev1.Node) (name string, reasons [][]string) {
	fewest := -1
	for _, node := range nodes {
		podsOnNode := b.assumed.with(b.podsOn(node.Name), node.Name)
		if r := fit(pod, node, podsOnNode); r != nil {
			reasons = append(reasons, r)
			continue
		}
		if fewest < 0 || len(podsOnNode) < fewest || (len(podsOnNode) == fewest && node.Name < name) {
			name, fewest = node.Name, len(podsOnNode)
		}
	}
	return name, reasons
}

func (b *Binder) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	b.assumed.put(pod, node)
	err := b.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	switch {
	case err == nil:
		b.log.Debug("pod bound", "namespace", pod.Namespace, "pod", pod.Name, "node", node)
		b.recorder.Eventf(pod, corev1.EventTypeNormal, "Scheduled", "Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, node)
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// Somebody deleted or bound it meanwhile: the watch will show it, there is nothing left to do.
		b.assumed.forget(pod.UID)
		return nil
	default:
		b.assumed.forget(pod.UID)
		return fmt.Errorf("bind to node %s: %w", node, err)
	}
}

// explainWaiting tells in the pod's status, and in an event, why it waits; once for every reason.
func (b *Binder) explainWaiting(ctx context.Context, pod *corev1.Pod, message string) error {
	condition := corev1.PodCondition{
		Type:               corev1.PodScheduled,
		Status:             corev1.ConditionFalse,
		Reason:             corev1.PodReasonUnschedulable,
		Message:            message,
		LastTransitionTime: metav1.Now(),
		ObservedGeneration: pod.Generation,
	}
	for _, c := range pod.Status.Conditions {
		if c.Type != condition.Type || c.Status != condition.Status {
			continue
		}
		if c.Reason == condition.Reason && c.Message == condition.Message {
			return nil
		}
		condition.LastTransitionTime = c.LastTransitionTime
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID}, // a pod of the same name made since is not meant
		"status":   map[string]any{"conditions": []corev1.PodCondition{condition}},
	})
	if err != nil {
		return err
	}
	_, err = b.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("write why it waits (%s): %w", message, err)
	}
	b.recorder.Event(pod, corev1.EventTypeWarning, "FailedScheduling", message)
	return nil
}
