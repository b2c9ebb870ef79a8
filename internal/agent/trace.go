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
	"monopod.dev/monopod/internal/kit/podstarts"
	"monopod.dev/monopod/internal/pods"
)

// traceSeen begins the time line of a pod that the agent hears of. One that an agent has begun to run before is older than this agent's memory.
func traceSeen(r *podstarts.Recorder, pod *v1.Pod) {
	if pod.Status.StartTime != nil {
		return
	}
	r.Open(string(pod.UID), pod.Namespace, pod.Name)
	r.Once(string(pod.UID), podstarts.Seen, "")
}

// tracedStatuses notes when statuses are handed to the writer, and what they tell for the first time.
type tracedStatuses struct {
	*status.Writer
	timeline *podstarts.Recorder
}

// Set implements act.Status.
func (t tracedStatuses) Set(pod *v1.Pod, st v1.PodStatus, passing bool) {
	uid := string(pod.UID)
	for _, s := range [...][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses} {
		for i := range s {
			if s[i].State.Running != nil {
				t.timeline.Once(uid, podstarts.Runs, s[i].Name)
			}
		}
	}
	t.timeline.Once(uid, told(&st).SetName(), "")
	t.Writer.Set(pod, st, passing)
}

// told is how far a status says that the pod is.
func told(st *v1.PodStatus) podstarts.Told {
	switch {
	case st.Phase == v1.PodSucceeded || st.Phase == v1.PodFailed:
		return podstarts.Over
	case pods.IsTrue(st, v1.PodReady):
		return podstarts.Ready
	case st.Phase == v1.PodRunning:
		return podstarts.Running
	}
	return podstarts.Pending
}

// tracedClient is the status writer's way to the API server: it notes how long a status was under way. With the status that says that the pod is ready, or
// that it has ended, its start is over, and its time line as well.
type tracedClient struct {
	kubernetes.Interface
	timeline *podstarts.Recorder
}

// CoreV1 implements kubernetes.Interface.
func (c tracedClient) CoreV1() typedv1.CoreV1Interface {
	return tracedCore{c.Interface.CoreV1(), c.timeline}
}

type tracedCore struct {
	typedv1.CoreV1Interface
	timeline *podstarts.Recorder
}

// Pods implements typedv1.CoreV1Interface.
func (c tracedCore) Pods(namespace string) typedv1.PodInterface {
	return tracedPods{c.CoreV1Interface.Pods(namespace), c.timeline}
}

type tracedPods struct {
	typedv1.PodInterface
	timeline *podstarts.Recorder
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
	if now == podstarts.Ready || now == podstarts.Over {
		p.timeline.Close(uid)
	}
	return pod, nil
}
