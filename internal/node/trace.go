package node

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/agent/podlog"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/timeline"
)

// What of a pod's start the roles know.
const (
	partOfAPIServer = timeline.Post + ", " + timeline.Store + ", " + timeline.Bind
	partOfAgent     = "what the agent does, " + timeline.FirstLog
)

// trace tells how a pod's start went.
func (t *teller) trace(ctx context.Context, namespace, name string) (protocol.Trace, error) {
	pod, known := t.timeline.Pod(namespace, name)
	if !known {
		return protocol.Trace{}, t.notRemembered(ctx, namespace, name)
	}
	out := protocol.Trace{Namespace: namespace, Pod: name, UID: pod.UID, Steps: []protocol.Step{}, Dropped: pod.Dropped, NotAsked: []protocol.Unknown{}}
	posted := false
	for _, s := range pod.Steps {
		posted = posted || s.Name == timeline.Post
	}
	switch {
	case t.api == nil:
		out.NotAsked = append(out.NotAsked, notHere(partOfAPIServer, "apiserver"))
	case !posted:
		out.NotAsked = append(out.NotAsked, protocol.Unknown{What: partOfAPIServer, Why: "the pod was made before this process began, at " + clock(t.timeline.Began())})
	}
	if t.agent {
		unread := t.addLogs(&pod)
		out.NotAsked = append(out.NotAsked, unread...)
	} else {
		out.NotAsked = append(out.NotAsked, notHere(partOfAgent, "agent"))
	}
	for _, s := range pod.Steps {
		told := protocol.Step{Step: s.Name, Container: s.Container, Part: timeline.Part(s.Name), Begin: s.Begin, Outcome: s.Outcome}
		if !s.End.IsZero() {
			told.End = &s.End
		}
		out.Steps = append(out.Steps, told)
	}
	return out, nil
}

// addLogs adds the first log lines of the containers that the agent has begun with.
func (t *teller) addLogs(pod *timeline.Pod) (unread []protocol.Unknown) {
	dir := filepath.Join(t.config.Config.Agent.PodLogsDir, podspec.LogDir(podspec.Ref{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}))
	looked := map[string]bool{"": true}
	for _, s := range pod.Steps {
		if looked[s.Container] {
			continue
		}
		looked[s.Container] = true
		at, err := podlog.First(filepath.Join(dir, s.Container))
		switch {
		case err != nil:
			unread = append(unread, protocol.Unknown{What: timeline.FirstLog + " of " + s.Container, Why: err.Error()})
		case !at.IsZero():
			pod.Steps = append(pod.Steps, timeline.Step{Name: timeline.FirstLog, Container: s.Container, Begin: at, End: at})
		}
	}
	timeline.Sort(pod.Steps)
	return unread
}

// notRemembered says why nothing is known of a pod's start.
func (t *teller) notRemembered(ctx context.Context, namespace, name string) error {
	ctx, cancel := context.WithTimeout(ctx, podsTime)
	defer cancel()
	created, err := t.created(ctx, namespace, name)
	began := t.timeline.Began()
	var why string
	switch {
	case apierrors.IsNotFound(err):
		why = fmt.Sprintf("there is no pod %s/%s: see 'kubectl get pods -A'", namespace, name)
	case err != nil:
		why = fmt.Sprintf("nothing is remembered of a pod %s/%s, and whether there is one cannot be asked now: %v", namespace, name, err)
	case created.Before(began):
		why = fmt.Sprintf("pod %s/%s was made at %s, before this process began, at %s, and only what was since is remembered: delete the pod and make it anew to see its start",
			namespace, name, clock(created), clock(began))
	default:
		why = fmt.Sprintf("pod %s/%s, made at %s, is not among the newest %d pods, which are remembered: delete it and make it anew to see its start",
			namespace, name, clock(created), timeline.DefaultPods)
	}
	return errdefs.ErrNotFound.WithMessage(why)
}

// created asks the API server when a pod was made.
func (t *teller) created(ctx context.Context, namespace, name string) (time.Time, error) {
	if err := t.answers(); err != nil {
		return time.Time{}, err
	}
	kube, err := kubernetes.NewForConfig(t.kube()) // it shares the connections of earlier ones
	if err != nil {
		return time.Time{}, err
	}
	pod, err := kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return time.Time{}, err
	}
	return pod.CreationTimestamp.Time, nil
}

func clock(t time.Time) string { return t.Format("2006-01-02 15:04:05") }
