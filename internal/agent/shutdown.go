package agent

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/agent/nodestatus"
	"monopod.dev/monopod/internal/agent/shutdown"
	"monopod.dev/monopod/internal/agent/worker"
)

func (a *Agent) shutdown() *shutdown.Manager {
	if a.cfg.Shutdown != nil {
		return a.cfg.Shutdown
	}
	return shutdown.New(shutdown.Config{Log: a.log})
}

// ending is what the agent does when the node shuts down.
type ending struct {
	roster   *roster
	reporter *nodestatus.Reporter
	events   record.EventRecorder
	ref      *v1.ObjectReference
}

var _ shutdown.Node = &ending{}

// Pods are those that have not come to rest.
func (e *ending) Pods() (pods []shutdown.Pod, known bool) {
	select {
	case <-e.roster.known:
		return e.roster.restless(), true
	default:
		return nil, false
	}
}

// Changed tells the pods, and has the node's conditions told.
func (e *ending) Changed() {
	e.roster.each((*worker.Worker).Poke)
	e.reporter.Changed()
}

// Event tells of the node.
func (e *ending) Event(message string) {
	e.events.Event(e.ref, v1.EventTypeNormal, "NodeShutdown", message)
}

// restless are the pods that have not come to rest, and those that have and of which the API server does not know it.
func (p *roster) restless() (pods []shutdown.Pod) {
	known := map[types.UID]*v1.Pod{}
	for _, pod := range p.Pods() {
		known[pod.UID] = pod
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, w := range p.workers {
		pod, ended := w.Pod(), w.Rests()
		if ended {
			now := known[uid]
			if now == nil || now.DeletionTimestamp != nil || now.Status.Phase == v1.PodSucceeded || now.Status.Phase == v1.PodFailed {
				continue
			}
		}
		pods = append(pods, shutdown.Pod{UID: uid, Namespace: pod.Namespace, Name: pod.Name, Priority: shutdown.Priority(pod), Ended: ended})
	}
	slices.SortFunc(pods, func(a, b shutdown.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(string(a.UID), string(b.UID)))
	})
	return pods
}
