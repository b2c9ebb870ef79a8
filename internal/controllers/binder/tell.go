package binder

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"monopod.dev/monopod/internal/controllers/owned"
)

// keepWaiting tells in the pod's status, and in an event, why it gets no node; once for every reason. A pod that has waited for its devices as long as
// it wants to fails instead.
func (b *Binder) keepWaiting(ctx context.Context, pod *corev1.Pod, why string, forDevices bool) error {
	now := time.Now()
	st := waiting(pod, why, forDevices, now)
	if at := failsAt(pod, &st); forDevices && !at.IsZero() {
		if !now.Before(at) {
			return b.fail(ctx, pod, failed(st, why, now))
		}
		b.queue.AddAfter(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, at.Sub(now))
	}
	if !apiequality.Semantic.DeepEqual(st, pod.Status) {
		err := b.patchStatus(ctx, pod, "", st)
		switch {
		case err != nil && owned.Gone(ctx, b.client, pod, err):
			return nil
		case err != nil:
			return fmt.Errorf("write why it waits (%s): %w", why, err)
		}
		if forDevices && condition(&pod.Status, devicesReady).Status == "" {
			b.checkDeadline(pod)
		}
	}
	told := ""
	if was := condition(&pod.Status, corev1.PodScheduled); was.Reason == corev1.PodReasonUnschedulable {
		told = was.Message
	}
	if tell, again := b.news.look(pod.UID, told, why, forDevices, now); tell {
		b.recorder.Event(pod, corev1.EventTypeWarning, "FailedScheduling", why)
	} else if again > 0 {
		b.queue.AddAfter(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, again)
	}
	return nil
}

// checkDeadline tells of an annotation that has no effect, of a pod for which it could have one.
func (b *Binder) checkDeadline(pod *corev1.Pod) {
	if _, err := patience(pod); err != nil && len(devices(pod)) > 0 {
		b.recorder.Event(pod, corev1.EventTypeWarning, reasonInvalidAnnotation, err.Error())
	}
}

// fail ends a pod that nobody has bound meanwhile.
func (b *Binder) fail(ctx context.Context, pod *corev1.Pod, st corev1.PodStatus) error {
	err := b.patchStatus(ctx, pod, pod.ResourceVersion, st)
	switch {
	case err != nil && owned.Gone(ctx, b.client, pod, err):
		return nil
	case err != nil: // after a conflict the pod is looked at again as it is then
		return fmt.Errorf("fail a pod that has waited for its devices (%s): %w", st.Message, err)
	}
	b.log.Info("pod failed: its deadline for devices has passed", "namespace", pod.Namespace, "pod", pod.Name, "message", st.Message)
	b.recorder.Event(pod, corev1.EventTypeWarning, st.Reason, st.Message)
	return nil
}

// patchStatus changes the status of this very pod, and only of the version, unless that is empty.
func (b *Binder) patchStatus(ctx context.Context, pod *corev1.Pod, version string, st corev1.PodStatus) error {
	from, err := json.Marshal(corev1.Pod{Status: pod.Status})
	if err != nil {
		return err
	}
	// A pod of the same name made since is not meant.
	to, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID, ResourceVersion: version}, Status: st})
	if err != nil {
		return err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(from, to, corev1.Pod{})
	if err != nil {
		return err
	}
	_, err = b.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
