// Package source says where the node's pods come from: an API server, which tells of those that are bound to the node. Who runs them sees the interface
// Source only.
package source

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/kit/informer"
)

// Source tells of pods.
type Source interface {
	// Run tells of pods until ctx ends, and of all that there are before it is Synced.
	Run(ctx context.Context, to Handler)
	// Synced says that all pods that there are have been told.
	Synced() bool
	// Pod is the pod of a name as it was told of last.
	Pod(namespace, name string) (*v1.Pod, bool)
	// Pods are all pods. They are not changed.
	Pods() []*v1.Pod
}

// Handler is told of pods, one call at a time.
type Handler interface {
	// Seen tells of a pod, or of a newer version of it.
	Seen(pod *v1.Pod)
	// Gone tells that there is no such pod any more.
	Gone(uid types.UID)
}

// API is the source of the pods that an API server has for a node.
type API struct {
	store cache.Store
	ctrl  cache.Controller
	to    Handler
}

// FromAPI makes the source of a node's pods. It asks nothing before Run.
func FromAPI(kube kubernetes.Interface, node string) *API {
	a := &API{}
	mine := fields.OneTermEqualSelector("spec.nodeName", node).String()
	a.store, a.ctrl = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = mine
				return kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = mine
				return kube.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, o)
			},
		}, kube),
		ObjectType: &v1.Pod{},
		Transform:  slim,
		Handler:    cache.ResourceEventHandlerFuncs{AddFunc: a.added, UpdateFunc: a.updated, DeleteFunc: a.deleted},
	})
	return a
}

// slim drops what the agent never looks at and what makes up most of a small object.
func slim(obj any) (any, error) {
	if pod, ok := obj.(*v1.Pod); ok {
		pod.ManagedFields = nil
	}
	return obj, nil
}

// Run implements Source.
func (a *API) Run(ctx context.Context, to Handler) {
	a.to = to
	a.ctrl.RunWithContext(ctx)
}

// Synced implements Source.
func (a *API) Synced() bool { return a.ctrl.HasSynced() }

// Pod implements Source.
func (a *API) Pod(namespace, name string) (*v1.Pod, bool) {
	obj, ok, err := a.store.GetByKey(namespace + "/" + name)
	if err != nil || !ok {
		return nil, false
	}
	return obj.(*v1.Pod), true
}

// Pods implements Source.
func (a *API) Pods() []*v1.Pod {
	var all []*v1.Pod
	for _, obj := range a.store.List() {
		all = append(all, obj.(*v1.Pod))
	}
	return all
}

func (a *API) added(obj any) { a.to.Seen(obj.(*v1.Pod)) }

func (a *API) updated(old, now any) {
	// After a gap in the watch a pod may have been replaced by another of the same name.
	if o, n := old.(*v1.Pod), now.(*v1.Pod); o.UID != n.UID {
		a.to.Gone(o.UID)
	}
	a.to.Seen(now.(*v1.Pod))
}

func (a *API) deleted(obj any) {
	if pod, ok := informer.Last[*v1.Pod](obj); ok {
		a.to.Gone(pod.UID)
	}
}
