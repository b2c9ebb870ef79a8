package binder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/controllers/binder/errand"
	"monopod.dev/monopod/internal/controllers/storageindex"
	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/queue"
	"monopod.dev/monopod/internal/pods"
)

// Config is what a Binder needs.
type Config struct {
	// Client has the right to create pods/binding, to patch pods/status, and to update persistentvolumes and persistentvolumeclaims.
	Client kubernetes.Interface
	// Pods and what else is watched are watched by others, too; who made the Binder starts them.
	Pods       coreinformers.PodInformer
	Nodes      coreinformers.NodeInformer
	Namespaces coreinformers.NamespaceInformer
	Claims     coreinformers.PersistentVolumeClaimInformer
	Volumes    coreinformers.PersistentVolumeInformer
	Classes    storageinformers.StorageClassInformer
	// OwnPorts are those at which a node serves itself, beside its agent's, which its status has; nil: none is known.
	OwnPorts func(node string) []pods.OwnPort
	// Events is where it says what becomes of a pod.
	Events record.EventRecorder
	// Log; nil: none.
	Log *slog.Logger
}

// Binder binds pods to nodes. See the package's documentation.
type Binder struct {
	log        *slog.Logger
	client     kubernetes.Interface
	pods       cache.SharedIndexInformer
	nodes      listers.NodeLister
	namespaces listers.NamespaceLister
	terms      namespaces
	known      []cache.DoneChecker
	queue      *queue.Queue[types.NamespacedName]
	recorder   record.EventRecorder
	book       book
	line       line
	ownPorts   func(*corev1.Node) []pods.OwnPort
	news       news
	shelves    shelves
	prospect   *prospect
	errands    errand.Table
	stranded   stranded
	toDo       *queue.Queue[types.UID] // the pods whose errands are to go on
}

// New returns a Binder that binds nothing until it is run.
func New(config Config) (*Binder, error) {
	b := &Binder{
		log: cmp.Or(config.Log, slog.New(slog.DiscardHandler)), client: config.Client, recorder: config.Events,
		pods: config.Pods.Informer(), nodes: config.Nodes.Lister(), namespaces: config.Namespaces.Lister(), queue: queue.New[types.NamespacedName](),
		shelves: shelves{config.Claims.Lister(), config.Volumes.Informer().GetIndexer(), config.Classes.Lister()}, toDo: queue.New[types.UID](),
	}
	b.prospect = &prospect{b.shelves, b}
	if err := errors.Join(storageindex.Volumes(config.Volumes.Informer()), storageindex.Pods(b.pods)); err != nil {
		return nil, fmt.Errorf("binder: %w", err)
	}
	b.terms, b.ownPorts = b.labelsOf, ownPorts(config.OwnPorts)
	for _, watched := range []struct {
		cache.SharedIndexInformer
		handler cache.ResourceEventHandler
	}{
		// A pod that has ended holds no resources: the filter turns its end into a deletion.
		{b.pods, cache.FilteringResourceEventHandler{FilterFunc: isAlive, Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { b.podChanged(nil, obj.(*corev1.Pod)) },
			UpdateFunc: func(old, obj any) { b.podChanged(old.(*corev1.Pod), obj.(*corev1.Pod)) },
			DeleteFunc: b.podGone,
		}}},
		{config.Nodes.Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { b.nodeCame(obj.(*corev1.Node)) },
			UpdateFunc: func(old, obj any) { b.nodeChanged(old.(*corev1.Node), obj.(*corev1.Node)) },
			DeleteFunc: b.nodeGone,
		}},
		{config.Namespaces.Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { b.namespaceChanged(nil, obj.(*corev1.Namespace)) },
			UpdateFunc: func(old, obj any) { b.namespaceChanged(old.(*corev1.Namespace), obj.(*corev1.Namespace)) },
		}},
		{config.Claims.Informer(), handlers(b.claimChanged, func(c *corev1.PersistentVolumeClaim) { b.claimChanged(nil, c) })},
		{config.Volumes.Informer(), handlers(b.volumeChanged, b.volumeGone)},
		{config.Classes.Informer(), handlers(b.classChanged, b.classGone)},
	} {
		followed, err := watched.AddEventHandler(watched.handler)
		if err != nil {
			return nil, fmt.Errorf("binder: %w", err)
		}
		b.known = append(b.known, followed.HasSyncedChecker())
	}
	return b, nil
}

// Run binds pods until ctx ends, which is no error. A Binder is run once.
func (b *Binder) Run(ctx context.Context) error {
	// A decision before all pods and nodes are known would count resources free that are not, or not know that somebody wants to be alone.
	cache.WaitFor(ctx, "", b.known...)
	var errands sync.WaitGroup
	errands.Go(func() {
		b.toDo.Run(ctx, errandWorkers, b.errand, func(uid types.UID, err error) {
			if e := b.errands.Get(uid); e != nil && !apierrors.IsConflict(err) { // else the object has just changed: what has become of it is looked at
				b.log.Warn("cannot bind the volumes of a pod, trying again", "namespace", e.Pod.Namespace, "pod", e.Pod.Name, "error", err)
			}
		})
	})
	defer errands.Wait()
	// One worker: decisions are made one after the other.
	b.queue.Run(ctx, 1, b.sync, func(key types.NamespacedName, err error) {
		b.log.Warn("cannot bind pod, trying again", "namespace", key.Namespace, "pod", key.Name, "error", err)
	})
	return nil
}

// isAlive says of what an informer tells that it is a pod that has not ended.
func isAlive(obj any) bool {
	pod, ok := informer.Last[*corev1.Pod](obj)
	return ok && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// podChanged queues a pod that waits for a node, and looks at those in line again when somebody may have left it.
func (b *Binder) podChanged(old, pod *corev1.Pod) {
	if old != nil && old.UID != pod.UID { // deleted and made again under the same name between two looks
		b.podGone(old)
		old = nil
	}
	if isOurs(pod) {
		b.line.enter(pod)
		deadlineChanged := old != nil && old.Annotations[devicesDeadline] != pod.Annotations[devicesDeadline]
		if old == nil || deadlineChanged || !maps.Equal(old.Labels, pod.Labels) || !apiequality.Semantic.DeepEqual(old.Spec, pod.Spec) {
			b.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
		if deadlineChanged {
			b.checkDeadline(pod)
		}
		return
	}
	b.line.leave(pod.UID)
	b.news.forget(pod.UID)
	if e := b.errands.Get(pod.UID); e == nil || !fits(e, pod) {
		b.cancel(pod)
	}
	if pod.Spec.NodeName != "" && b.book.show(pod) {
		b.freed(pod, pod.Spec.NodeName)
	}
	switch {
	case !isPlaced(pod):
		b.stranded.drop(pod.UID)
	case (old == nil || old.Spec.NodeName == "") && len(pods.Claims(pod)) > 0:
		b.queue.Add(key(pod))
	}
	if old == nil || isOurs(old) { // it has left the line, or what it takes puts somebody out of it
		b.retry(b.line.keptOnes(), func(*waiter) bool { return true })
	}
	if old != nil && waits(old) != waits(pod) { // those who ask for the same are told for whom it is kept
		held := devices(pod)
		b.retry(b.line.all(), func(w *waiter) bool { return shares(held, w.asks) })
	}
	if seenOtherwise(old, pod) {
		b.retry(b.line.mindingOnes(), func(w *waiter) bool { return b.terms.minds(w.pod, pod) || old != nil && b.terms.minds(w.pod, old) })
	}
}

// seenOtherwise says of a change of a pod whether it may be another one for those that go by which pods are where.
func seenOtherwise(old, pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	return old == nil || old.Spec.NodeName == "" || (old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) || !maps.Equal(old.Labels, pod.Labels)
}

func (b *Binder) podGone(obj any) {
	pod, ok := informer.Last[*corev1.Pod](obj)
	if !ok {
		return
	}
	b.line.leave(pod.UID)
	b.news.forget(pod.UID)
	b.stranded.drop(pod.UID)
	b.cancel(pod)
	b.retry(b.line.keptOnes(), func(*waiter) bool { return true })
	if _, node := b.book.remove(pod.UID); node != "" {
		b.freed(pod, node)
	}
}

// freed looks again at those who may get a node because a pod has left its own: for whom there is enough on that one, and those for whom it matters who is
// where. All others lack what they did before.
func (b *Binder) freed(pod *corev1.Pod, name string) {
	waiting := b.line.all()
	if len(waiting) == 0 {
		return
	}
	for _, claim := range pods.Claims(pod) { // which may have been for it alone, on whatever node
		b.retry(b.line.claimingOf(claim.NamespacedName), func(*waiter) bool { return true })
	}
	node, err := b.nodes.Get(name)
	if err != nil {
		return // it takes nobody
	}
	held := devices(pod)
	b.book.look([]*corev1.Node{node}, func(there []place) {
		b.retry(waiting, func(w *waiter) bool {
			return len(resourcesSuffice(w.wanted, there[0])) == 0 || shares(held, w.asks) || b.terms.minds(w.pod, pod) || b.terms.shuns(pod, w.pod)
		})
	})
}

// shares says whether two ask for some of the same devices. What is told of a wait for devices depends on them, even if something else is lacking as well.
func shares(a, b map[corev1.ResourceName]bool) bool {
	for name := range a {
		if b[name] {
			return true
		}
	}
	return false
}

func (b *Binder) nodeCame(node *corev1.Node) {
	b.retryStranded(node.Name)
	b.retryWaiting()
}

func (b *Binder) nodeChanged(old, node *corev1.Node) {
	// Most changes of a node are heartbeats, which change no decision.
	if readiness(old) == readiness(node) &&
		apiequality.Semantic.DeepEqual(old.Spec, node.Spec) &&
		apiequality.Semantic.DeepEqual(old.Labels, node.Labels) &&
		old.Annotations[deviceFaults] == node.Annotations[deviceFaults] &&
		apiequality.Semantic.DeepEqual(old.Status.Allocatable, node.Status.Allocatable) {
		return
	}
	b.goOn(b.errands.On(node.Name))
	b.retryStranded(node.Name)
	b.retryWaiting()
}

func (b *Binder) nodeGone(obj any) {
	if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		b.goOn(b.errands.On(name.Name))
	}
	b.retryWaiting()
}

// namespaceChanged looks again at those that a namespace's labels can be about: its own pods, and those that ask for namespaces by their labels.
func (b *Binder) namespaceChanged(old, namespace *corev1.Namespace) {
	if old != nil && maps.Equal(old.Labels, namespace.Labels) {
		return
	}
	b.retry(b.line.all(), func(w *waiter) bool { return w.pod.Namespace == namespace.Name || mindsNamespaces(w.pod) })
}

// labelsOf are the labels of a namespace; none where it is not known yet, and then it is told of.
func (b *Binder) labelsOf(namespace string) map[string]string {
	n, err := b.namespaces.Get(namespace)
	if err != nil {
		return nil
	}
	return n.Labels
}

// retryWaiting queues all pods that wait for a node, the oldest first.
func (b *Binder) retryWaiting() {
	b.retry(b.line.all(), func(*waiter) bool { return true })
}

// retry queues some of those in line, the oldest first.
func (b *Binder) retry(some []*waiter, which func(*waiter) bool) {
	for _, pod := range inOrder(slices.DeleteFunc(some, func(w *waiter) bool { return !which(w) })) {
		b.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
}

// isOurs reports whether a pod waits for the binder. One with scheduling gates does not yet.
func isOurs(pod *corev1.Pod) bool {
	return len(pod.Spec.SchedulingGates) == 0 && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && pod.Spec.SchedulerName == corev1.DefaultSchedulerName && isAlive(pod)
}

// sync decides about one pod.
func (b *Binder) sync(ctx context.Context, key types.NamespacedName) error {
	obj, found, err := b.pods.GetStore().GetByKey(key.String())
	if err != nil || !found {
		return err
	}
	pod := obj.(*corev1.Pod)
	placed := isPlaced(pod)
	if !placed && (!isOurs(pod) || b.book.has(pod.UID)) {
		return nil
	}
	if pause := b.errands.Pause(pod.UID, time.Now()); pause > 0 {
		b.queue.AddAfter(key, pause)
		return nil
	}
	if placed {
		return b.supply(pod)
	}
	b.line.keep(pod.UID, true) // as far as is known: who leaves the line from here on has it looked at again
	nodes, err := b.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	var d decision
	b.book.look(nodes, func(places []place) {
		d = b.decide(pod, cluster{places: places, namespaces: b.terms, own: b.ownPorts, storage: b.prospect})
	})
	b.line.keep(pod.UID, d.behind)
	switch {
	case d.stale:
		b.queue.Add(key)
		return nil
	case d.node == "":
		return b.keepWaiting(ctx, pod, d.why, d.forDevices)
	case d.pod != pod: // nobody is to be told of a wait for that one
		b.queue.Add(key)
	}
	if !d.plan.Empty() {
		b.start(d.pod, d.node, d.plan)
		return nil
	}
	return b.bind(ctx, d.pod, d.node)
}

// decision is what is done about a pod.
type decision struct {
	// pod gets the node; empty: there is none, for this reason.
	pod        *corev1.Pod
	node       string
	why        string
	forDevices bool
	// plan is what has to become of its claims first.
	plan errand.Plan
	// behind: it is another one in line for which the pod waits.
	behind bool
	// stale: claims or volumes have changed while it was decided, so it is to be decided again.
	stale bool
}

// decide says what is done about a pod. The one that it stands behind in line may have its turn now, and just not have been looked at yet: then that one gets its
// node.
func (b *Binder) decide(pod *corev1.Pod, in cluster) decision {
	node, lacks := b.choose(pod, in)
	if node != "" {
		p, ok := in.plan(pod, node)
		return decision{pod: pod, node: node, plan: p, stale: !ok}
	}
	first := behind(lacks)
	if first != nil {
		if node, _ := b.choose(first, in); node != "" {
			p, ok := in.plan(first, node)
			return decision{pod: first, node: node, plan: p, behind: true, stale: !ok}
		}
	}
	return decision{why: explain(pod, in.places, lacks), forDevices: lacksDevices(lacks), behind: first != nil}
}

// choose asks who came before only for a pod that could have a node: it takes time where many wait.
func (b *Binder) choose(pod *corev1.Pod, in cluster) (node string, lacks [][]lack) {
	node, lacks = choose(pod, in, nil)
	if asks := devices(pod); node != "" && len(asks) > 0 {
		return choose(pod, in, b.olderThan(pod, asks))
	}
	return node, lacks
}

// olderThan returns those of the pods without a node that came before one and ask for some of the same devices, the oldest first. The book is being looked at.
func (b *Binder) olderThan(pod *corev1.Pod, asks map[corev1.ResourceName]bool) []*corev1.Pod {
	return inOrder(slices.DeleteFunc(b.line.before(pod), func(w *waiter) bool { return !shares(asks, w.asks) || b.book.pods[w.pod.UID] != nil }))
}

func (b *Binder) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	b.book.assume(pod, node)
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
		b.unbound(pod, node)
		return nil
	default:
		b.unbound(pod, node)
		return fmt.Errorf("bind to node %s: %w", node, err)
	}
}

// unbound takes back that a pod is on its way to a node. Somebody may have been told meanwhile that the node is full.
func (b *Binder) unbound(pod *corev1.Pod, node string) {
	if b.book.fail(pod.UID) {
		b.freed(pod, node)
	}
}
