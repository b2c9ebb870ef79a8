// Package status writes pods' statuses to the API server.
//
// It guarantees that the last status that was set for a pod is written as soon as the API server takes it, that only the
// difference to what the API server has is sent, and that a status never reaches another pod of the same name: it names
// the pod's UID, and that it is another's is found out by the first answer. Statuses in between may be left out: so that a
// pod's start costs one write and not four, one that tells only that it has got a step further waits a moment for the next; so
// does one that tells of what is soon over.
package status

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"monopod.dev/monopod/internal/agent/plan"
)

const (
	parallel = 8
	// retryFirst doubles up to retryMax while the API server does not take a status.
	retryFirst = 50 * time.Millisecond
	retryMax   = 10 * time.Second
	timeout    = 15 * time.Second
	// moment is for how long a status waits that only tells how a start goes on, or of what is passing: longer than most starts take, shorter than anybody
	// notices.
	moment = 200 * time.Millisecond
)

// Writer writes statuses. It is safe for concurrent use.
type Writer struct {
	client kubernetes.Interface
	log    *slog.Logger
	queue  workqueue.TypedRateLimitingInterface[types.UID]

	mu   sync.Mutex // guards what follows
	pods map[types.UID]*entry
}

// entry is the state of one pod's status.
type entry struct {
	// base is the newest version known of the object.
	base *v1.Pod
	want v1.PodStatus
	// set counts the calls of Set, written is the count whose status the API server has.
	set, written int
	// settled is closed, and replaced, whenever written changes.
	settled chan struct{}
}

// New makes a writer; nothing is written before Run.
func New(client kubernetes.Interface, log *slog.Logger) *Writer {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](retryFirst, retryMax)
	return &Writer{
		client: client, log: log, pods: map[types.UID]*entry{},
		queue: workqueue.NewTypedRateLimitingQueue(limiter),
	}
}

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			for {
				uid, shutdown := w.queue.Get()
				if shutdown {
					return
				}
				w.process(ctx, uid)
				w.queue.Done(uid)
			}
		})
	}
	<-ctx.Done()
	w.queue.ShutDown()
	wg.Wait()
}

// Set makes st the pod's status. pod is the newest version of the object that the caller knows. passing says that what st tells beyond the status set before
// will most likely be over in a moment.
func (w *Writer) Set(pod *v1.Pod, st v1.PodStatus, passing bool) {
	w.mu.Lock()
	e := w.pods[pod.UID]
	if e == nil {
		e = &entry{settled: make(chan struct{})}
		w.pods[pod.UID] = e
	}
	e.learn(pod)
	e.want = st
	e.set++
	wait := (passing || starting(&e.base.Status) && starting(&st)) && pod.DeletionTimestamp == nil
	w.mu.Unlock()
	if wait {
		w.queue.AddAfter(pod.UID, moment)
	} else {
		w.queue.Add(pod.UID)
	}
}

// starting says of a status that the pod is on its way, and that it tells of nothing but that.
func starting(st *v1.PodStatus) bool {
	if st.Phase != v1.PodPending && st.Phase != "" || st.Reason != "" || st.Message != "" {
		return false
	}
	for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses) {
		w := c.State.Waiting
		if w == nil || w.Message != "" || w.Reason != plan.ReasonContainerCreating && w.Reason != plan.ReasonPodInitializing || c.LastTerminationState.Terminated != nil {
			return false
		}
	}
	return true
}

// Flush returns when the last status that was set is written, or can't be because the pod is gone.
func (w *Writer) Flush(ctx context.Context, uid types.UID) error {
	for {
		w.mu.Lock()
		e := w.pods[uid]
		if e == nil || e.written == e.set {
			w.mu.Unlock()
			return nil
		}
		settled := e.settled
		w.mu.Unlock()
		w.queue.Add(uid) // it may wait
		select {
		case <-settled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Forget drops the pod; a status that is not written yet is not written.
func (w *Writer) Forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.pods[uid]; e != nil {
		delete(w.pods, uid)
		close(e.settled)
	}
}

// learn takes a version of the object unless a newer one is known.
func (e *entry) learn(pod *v1.Pod) {
	if e.base != nil {
		if c, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, e.base.ResourceVersion); err == nil && c < 0 {
			return
		}
	}
	e.base = pod
}

func (w *Writer) process(ctx context.Context, uid types.UID) {
	w.mu.Lock()
	e := w.pods[uid]
	if e == nil || e.written == e.set { // it was written before its moment was over
		w.mu.Unlock()
		w.queue.Forget(uid)
		return
	}
	base, want, set := e.base, e.want, e.set
	w.mu.Unlock()

	written, err := w.write(ctx, base, want)
	switch {
	case err != nil && w.gone(ctx, base, err):
		w.Forget(uid)
	case err != nil:
		if ctx.Err() == nil {
			w.log.Warn("a pod's status could not be written; it is tried again", "pod", base.Namespace+"/"+base.Name, "error", err)
			w.queue.AddRateLimited(uid)
		}
		return
	}
	w.queue.Forget(uid)
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.pods[uid]; e != nil {
		if written != nil {
			e.learn(written)
		}
		e.written = set
		close(e.settled)
		e.settled = make(chan struct{})
	}
}

// gone says that the API server refused the status because the pod is gone, or another one of the same name is in its place. Of the latter
// API servers tell in more than one way: by a conflict, which may also be one with another writer, or as a change of a field that cannot be changed.
func (w *Writer) gone(ctx context.Context, base *v1.Pod, err error) bool {
	if apierrors.IsNotFound(err) {
		return true
	}
	if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	now, err := w.client.CoreV1().Pods(base.Namespace).Get(ctx, base.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && now.UID != base.UID
}

// write sends the difference; nil: there was none.
func (w *Writer) write(ctx context.Context, base *v1.Pod, want v1.PodStatus) (*v1.Pod, error) {
	patch, err := Patch(base, want)
	if err != nil || patch == nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return w.client.CoreV1().Pods(base.Namespace).Patch(ctx, base.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// Patch is the strategic merge patch from the object's status to want, with the object's UID as its precondition; nil:
// there is no difference.
func Patch(base *v1.Pod, want v1.PodStatus) ([]byte, error) {
	from, err := json.Marshal(v1.Pod{Status: base.Status})
	if err != nil {
		return nil, err
	}
	to, err := json.Marshal(v1.Pod{Status: want})
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(from, to, v1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("difference of the statuses of pod %s/%s: %w", base.Namespace, base.Name, err)
	}
	if string(patch) == "{}" {
		return nil, nil
	}
	var m map[string]any
	if err := json.Unmarshal(patch, &m); err != nil {
		return nil, err
	}
	m["metadata"] = map[string]any{"uid": string(base.UID)}
	return json.Marshal(m)
}
