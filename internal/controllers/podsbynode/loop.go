package podsbynode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/queue"
)

// Pod is which pod is to be looked at. The zero Pod is none: Sync may have a meaning for it.
type Pod struct {
	types.NamespacedName
	UID types.UID
}

// Of names a pod.
func Of(pod *corev1.Pod) Pod {
	return Pod{types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID}
}

// Config says what a Loop is of. Those of its functions that tell of changes must not wait.
type Config struct {
	// Pods and Nodes are watched by others, too; who made the Loop starts them.
	Pods  coreinformers.PodInformer
	Nodes coreinformers.NodeInformer
	// PodChanged is told of a pod that comes (old is nil) or changes, PodGone of one that goes. One that was made again under its name between two looks goes, and
	// another one comes.
	PodChanged func(old, pod *corev1.Pod)
	PodGone    func(pod *corev1.Pod)
	// NodeChanged is told of a node that comes (old is nil) or changes, NodeGone of one that goes; nil: nobody is.
	NodeChanged func(old, node *corev1.Node)
	NodeGone    func(node *corev1.Node)
	// Workers is how many pods are looked at at a time.
	Workers int
	// Sync does what is to be done about a pod, which is the cache's, and nil where it is not there any more. It says after which time the pod is to be looked at
	// again if nothing happens before, 0: at no time. After an error, which is logged, it is called again.
	Sync func(ctx context.Context, which Pod, pod *corev1.Pod) (again time.Duration, err error)
	Log  *slog.Logger
}

// Loop looks at pods for the sake of their nodes, each by one worker at a time. Its methods are safe for concurrent use.
type Loop struct {
	config Config
	pods   cache.SharedIndexInformer
	known  []cache.DoneChecker
	queue  *queue.Queue[Pod]
}

// New returns a Loop that knows nothing until Follow is called, so that the functions of its configuration may use it.
func New(config Config) *Loop {
	return &Loop{config: config, pods: config.Pods.Informer(), queue: queue.New[Pod]()}
}

// Follow has pods found by their node, and the Loop told of pods and nodes, also of those that the informers know already. It is called once, before Run.
func (l *Loop) Follow() error {
	indexed := Index(l.pods)
	pods, podsErr := l.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { l.config.PodChanged(nil, obj.(*corev1.Pod)) },
		UpdateFunc: func(old, obj any) { l.podChanged(old.(*corev1.Pod), obj.(*corev1.Pod)) },
		DeleteFunc: gone(l.config.PodGone),
	})
	nodes, nodesErr := l.config.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { l.config.NodeChanged(nil, obj.(*corev1.Node)) },
		UpdateFunc: func(old, obj any) { l.config.NodeChanged(old.(*corev1.Node), obj.(*corev1.Node)) },
		DeleteFunc: gone(l.config.NodeGone),
	})
	if err := errors.Join(indexed, podsErr, nodesErr); err != nil {
		return fmt.Errorf("watch pods and nodes: %w", err)
	}
	l.known = []cache.DoneChecker{pods.HasSyncedChecker(), nodes.HasSyncedChecker()}
	return nil
}

// gone tells of an object that goes, as it was when it was last seen.
func gone[T any](tell func(T)) func(any) {
	return func(obj any) {
		if of, ok := informer.Last[T](obj); ok && tell != nil {
			tell(of)
		}
	}
}

func (l *Loop) podChanged(old, pod *corev1.Pod) {
	if old.UID != pod.UID {
		l.config.PodGone(old)
		old = nil
	}
	l.config.PodChanged(old, pod)
}

// Run looks at pods until ctx ends, which is no error. A Loop is run once.
func (l *Loop) Run(ctx context.Context) error {
	cache.WaitFor(ctx, "", l.known...)
	l.queue.Run(ctx, l.config.Workers, l.sync, func(pod Pod, err error) {
		l.config.Log.Warn("a pod could not be deleted yet, trying again", "namespace", pod.Namespace, "pod", pod.Name, "error", err)
	})
	return nil
}

// Look has a pod looked at.
func (l *Loop) Look(pod Pod) { l.queue.Add(pod) }

// Each calls see for all pods of a node.
func (l *Loop) Each(node string, see func(*corev1.Pod)) {
	all, err := Pods(l.pods, node)
	if err != nil {
		l.config.Log.Error("pods of a node are not found", "node", node, "error", err)
		return
	}
	for _, pod := range all {
		see(pod)
	}
}

// Find is a pod as the cache has it; nil: it is not there.
func (l *Loop) Find(which Pod) (*corev1.Pod, error) {
	obj, found, err := l.pods.GetStore().GetByKey(which.String())
	if err != nil {
		return nil, err
	}
	if pod, ok := obj.(*corev1.Pod); found && ok && pod.UID == which.UID {
		return pod, nil
	}
	return nil, nil
}

func (l *Loop) sync(ctx context.Context, which Pod) error {
	pod, err := l.Find(which)
	if err != nil {
		return err
	}
	again, err := l.config.Sync(ctx, which, pod)
	if again > 0 {
		l.queue.AddAfter(which, again)
	}
	return err
}

// Delete deletes this very pod, after a change of its status, by which whoever owns it knows why; nil: there is none. It says false where the pod was gone before.
func Delete(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, status map[string]any, options metav1.DeleteOptions) (bool, error) {
	all := client.CoreV1().Pods(pod.Namespace)
	if status != nil {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
		if err != nil {
			return false, err
		}
		_, err = all.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		switch {
		case err != nil && owned.Gone(ctx, client, pod, err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("status: %w", err)
		}
	}
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	if err := all.Delete(ctx, pod.Name, options); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return false, err
	}
	return true, nil
}
