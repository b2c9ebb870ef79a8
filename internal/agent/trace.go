package agent

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"monopod.dev/monopod/internal/agent/status"
	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/timeline"
)

// traceSeen begins the time line of a pod that the agent hears of. One that an agent has begun to run before is older than this agent's memory.
func traceSeen(r *timeline.Recorder, pod *v1.Pod) {
	if pod.Status.StartTime != nil {
		return
	}
	r.Open(string(pod.UID), pod.Namespace, pod.Name)
	r.Once(string(pod.UID), timeline.Seen, "")
}

// tracedStatuses notes when statuses are handed to the writer, and what they tell for the first time.
type tracedStatuses struct {
	*status.Writer
	timeline *timeline.Recorder
}

// Set implements act.Status.
func (t tracedStatuses) Set(pod *v1.Pod, st v1.PodStatus, passing bool) {
	uid := string(pod.UID)
	for _, s := range [...][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses} {
		for i := range s {
			if s[i].State.Running != nil {
				t.timeline.Once(uid, timeline.Runs, s[i].Name)
			}
		}
	}
	t.timeline.Once(uid, told(&st).SetName(), "")
	t.Writer.Set(pod, st, passing)
}

// told is how far a status says that the pod is.
func told(st *v1.PodStatus) timeline.Told {
	switch {
	case st.Phase == v1.PodSucceeded || st.Phase == v1.PodFailed:
		return timeline.Over
	case pods.IsTrue(st, v1.PodReady):
		return timeline.Ready
	case st.Phase == v1.PodRunning:
		return timeline.Running
	}
	return timeline.Pending
}

// tracedClient is the status writer's way to the API server: it notes how long a status was under way. With the status that says that the pod is ready, or
// that it has ended, its start is over, and its time line as well.
type tracedClient struct {
	kubernetes.Interface
	timeline *timeline.Recorder
}

// CoreV1 implements kubernetes.Interface.
func (c tracedClient) CoreV1() typedv1.CoreV1Interface {
	return tracedCore{c.Interface.CoreV1(), c.timeline}
}

type tracedCore struct {
	typedv1.CoreV1Interface
	timeline *timeline.Recorder
}

// Pods implements typedv1.CoreV1Interface.
func (c tracedCore) Pods(namespace string) typedv1.PodInterface {
	return tracedPods{c.CoreV1Interface.Pods(namespace), c.timeline}
}

type tracedPods struct {
	typedv1.PodInterface
	timeline *timeline.Recorder
}

// Patch implements typedv1.PodInterface.
func (p tracedPods) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*v1.Pod, error) {
	begun := time.Now()
	pod, err := p.PodInterface.Patch(ctx, name, kind, data, opts, subresources...)
	if err != nil {
		return pod, err
	}
	uid, now := string(pod.UID), told(&pod.Status)
	p.timeline.Span(uid, now.WriteName(), "", begun, time.Now())
	if now == timeline.Ready || now == timeline.Over {
		p.timeline.Close(uid)
	}
	return pod, nil
}
