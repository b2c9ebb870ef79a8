package status

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/agent/podlog"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/kit/podstarts"
)

// What of a pod's start the roles know.
const (
	partOfAPIServer = podstarts.Post + ", " + podstarts.Store + ", " + podstarts.Bind
	partOfAgent     = "what the agent does, " + podstarts.FirstLog
)

// Trace tells how a pod's start went.
func (t *Teller) Trace(ctx context.Context, namespace, name string) (protocol.Trace, error) {
	pod, known := t.cfg.Timeline.Pod(namespace, name)
	if !known {
		return protocol.Trace{}, t.notRemembered(ctx, namespace, name)
	}
	out := protocol.Trace{Namespace: namespace, Pod: name, UID: pod.UID, Steps: []protocol.Step{}, Dropped: pod.Dropped, NotAsked: []protocol.Unknown{}}
	posted := false
	for _, s := range pod.Steps {
		posted = posted || s.Name == podstarts.Post
	}
	switch {
	case t.API == nil:
		out.NotAsked = append(out.NotAsked, notHere(partOfAPIServer, "apiserver"))
	case !posted:
		out.NotAsked = append(out.NotAsked, protocol.Unknown{What: partOfAPIServer, Why: "the pod was made before this process began, at " + clock(t.cfg.Timeline.Began())})
	}
	if t.Agent != nil {
		unread := t.addLogs(&pod)
		out.NotAsked = append(out.NotAsked, unread...)
	} else {
		out.NotAsked = append(out.NotAsked, notHere(partOfAgent, "agent"))
	}
	for _, s := range pod.Steps {
		told := protocol.Step{Step: s.Name, Container: s.Container, Part: podstarts.Part(s.Name), Begin: s.Begin, Outcome: s.Outcome}
		if !s.End.IsZero() {
			told.End = &s.End
		}
		out.Steps = append(out.Steps, told)
	}
	return out, nil
}

// addLogs adds the first log lines of the containers that the agent has begun with.
func (t *Teller) addLogs(pod *podstarts.Pod) (unread []protocol.Unknown) {
	dir := filepath.Join(t.cfg.PodLogsDir, podspec.LogDir(podspec.Ref{UID: types.UID(pod.UID), Namespace: pod.Namespace, Name: pod.Name}))
	looked := map[string]bool{"": true}
	for _, s := range pod.Steps {
		if looked[s.Container] {
			continue
		}
		looked[s.Container] = true
		at, err := podlog.First(filepath.Join(dir, s.Container))
		switch {
		case err != nil:
			unread = append(unread, protocol.Unknown{What: podstarts.FirstLog + " of " + s.Container, Why: err.Error()})
		case !at.IsZero():
			pod.Steps = append(pod.Steps, podstarts.Step{Name: podstarts.FirstLog, Container: s.Container, Begin: at, End: at})
		}
	}
	podstarts.Sort(pod.Steps)
	return unread
}

// notRemembered says why nothing is known of a pod's start.
func (t *Teller) notRemembered(ctx context.Context, namespace, name string) error {
	ctx, cancel := context.WithTimeout(ctx, podsTime)
	defer cancel()
	found, err := t.named(ctx, name)
	return errdefs.ErrNotFound.WithMessage(t.whyNot(namespace, name, found, err))
}

// whyNot is that for the pods of the name that there are, by namespace, or for the error that came in their stead.
func (t *Teller) whyNot(namespace, name string, found map[string]time.Time, err error) string {
	began := t.cfg.Timeline.Began()
	created, is := found[namespace]
	switch {
	case is && created.Before(began):
		return fmt.Sprintf("pod %s/%s was made at %s, before this process began, at %s, and only what was since is remembered: delete the pod and make it anew to see its start",
			namespace, name, clock(created), clock(began))
	case is:
		return fmt.Sprintf("pod %s/%s, made at %s, is not among the newest %d pods, which are remembered: delete it and make it anew to see its start",
			namespace, name, clock(created), podstarts.DefaultPods)
	}
	var why string
	switch {
	case err != nil:
		why = fmt.Sprintf("nothing is remembered of a pod %s/%s, and whether there is one cannot be asked now: %v", namespace, name, err)
	case t.API == nil:
		why = fmt.Sprintf("this node has no pod %s/%s", namespace, name)
	default:
		why = fmt.Sprintf("there is no pod %s/%s", namespace, name)
	}
	others := slices.Sorted(maps.Keys(found))
	others = append(others, slices.DeleteFunc(t.cfg.Timeline.Namespaces(name), func(ns string) bool { return slices.Contains(others, ns) })...)
	return why + elsewhere(others)
}

// elsewhere says in which namespaces pods of a name are, or were.
func elsewhere(namespaces []string) string {
	switch n := len(namespaces); {
	case n == 0:
		return "; 'kubectl get pods -A' lists all"
	case n == 1:
		return fmt.Sprintf("; a pod of that name is, or was, in namespace %s: try -n %[1]s", namespaces[0])
	case n > mostNamespaces:
		return fmt.Sprintf("; pods of that name are, or were, in %d namespaces, %s among them: choose one with -n", n, strings.Join(namespaces[:mostNamespaces], ", "))
	}
	return fmt.Sprintf("; pods of that name are, or were, in the namespaces %s: choose one with -n", strings.Join(namespaces, ", "))
}

// mostNamespaces is how many an error names.
const mostNamespaces = 5

// named asks the API server when the pods of a name were made, by namespace. An agent may ask for those of its node only, and gets no answer for a single one
// that is not there; the API server of this process is asked for all, also those that have no node yet.
func (t *Teller) named(ctx context.Context, name string) (map[string]time.Time, error) {
	if err := t.answers(); err != nil {
		return nil, err
	}
	which, reach := []fields.Selector{fields.OneTermEqualSelector("metadata.name", name)}, t.Kube
	if t.API != nil {
		reach = t.API.AdminConfig
	} else {
		which = append(which, fields.OneTermEqualSelector("spec.nodeName", t.cfg.Node))
	}
	kube, err := kubernetes.NewForConfig(reach()) // it shares the connections of earlier ones
	if err != nil {
		return nil, err
	}
	list, err := kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.AndSelectors(which...).String()})
	if err != nil {
		return nil, err
	}
	made := map[string]time.Time{}
	for i := range list.Items {
		made[list.Items[i].Namespace] = list.Items[i].CreationTimestamp.Time
	}
	return made, nil
}

func clock(t time.Time) string { return t.Format("2006-01-02 15:04:05") }
