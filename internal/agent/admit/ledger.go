package admit

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/pods/allocated"
)

// Config says what the ledger is about.
type Config struct {
	// Node is the node as far as it is known without asking anybody, with what of it pods may have (status.allocatable), and the system that it runs
	// (status.nodeInfo.operatingSystem); nil: it is not known. It is not changed.
	Node func() *v1.Node
	// Fresh asks the API server for the node, which may have labels by now that Node does not know. It may take its time; an error: it could not be asked.
	Fresh func() (*v1.Node, error)
	// Known are the node's pods as the API server has them, as far as they are known, and Synced says that all are.
	Known  func() []*v1.Pod
	Synced func() bool
	// OwnPorts are those at which the node itself serves.
	OwnPorts []pods.OwnPort
}

// Ledger holds what the node's pods have. All methods are safe for concurrent use.
type Ledger struct {
	cfg Config

	mu      sync.Mutex // guards what follows
	entries map[types.UID]*entry
	used    Used
	// adopted: all pods that began before this agent did are in it.
	adopted bool
}

// entry is what one pod has.
type entry struct {
	need  Need
	given allocated.Given
}

func entryOf(pod *v1.Pod) *entry { return &entry{NeedOf(pod), allocated.Of(pod).Given()} }

// NewLedger makes an empty one.
func NewLedger(cfg Config) *Ledger {
	return &Ledger{cfg: cfg, entries: map[types.UID]*entry{}, used: Used{own: cfg.OwnPorts}}
}

// Take gives the pod what it asks for and returns nil, or says why it does not get it. A pod that has it already keeps it, and one that has begun (it has a
// start time, or the runtime holds something of it) is always admitted: whatever it asks for, it has.
func (l *Ledger) Take(pod *v1.Pod, begun bool) *Refusal {
	node := l.cfg.Node()
	refusal := l.take(pod, begun, node)
	if refusal == nil || node != nil && refusal.Reason != ReasonNodeAffinity {
		return refusal
	}
	// Who has labelled the node a moment ago, for this very pod, is not told that it has no such label.
	fresh, err := l.cfg.Fresh()
	if err != nil {
		return refusal
	}
	return l.take(pod, begun, fresh)
}

func (l *Ledger) take(pod *v1.Pod, begun bool, node *v1.Node) *Refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries[pod.UID] != nil {
		return nil
	}
	e := entryOf(pod)
	if !begun {
		l.adopt(pod.UID)
		if node == nil {
			return &Refusal{ReasonInvalidNode, unknownNode}
		}
		if refusal := Decide(node, &l.used, pod, &e.need); refusal != nil {
			return refusal
		}
	}
	l.enter(pod.UID, e)
	return nil
}

// Admitted is the pod with what it was given in the place of what it asks for by now (allocated.Given.In); the pod itself where it was given nothing yet, or
// just that. The caller's pod is not changed.
func (l *Ledger) Admitted(pod *v1.Pod) *v1.Pod {
	l.mu.Lock()
	e := l.entries[pod.UID]
	l.mu.Unlock()
	if e == nil {
		return pod
	}
	return e.given.In(pod)
}

// adopt enters the pods that began before this agent did and have not ended, but for one: until it has seen all of them, whoever comes first must not get
// what one has that is not looked at yet. l.mu is held.
func (l *Ledger) adopt(but types.UID) {
	if l.adopted {
		return
	}
	l.adopted = l.cfg.Synced() // asked first: what is known afterwards is at least as much
	for _, pod := range l.cfg.Known() {
		over := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		if pod.UID != but && !over && pod.Status.StartTime != nil && l.entries[pod.UID] == nil {
			l.enter(pod.UID, entryOf(pod))
		}
	}
}

func (l *Ledger) enter(uid types.UID, e *entry) {
	l.entries[uid] = e
	l.used.Add(&e.need)
}

// Release takes back what the pod has, if it has anything.
func (l *Ledger) Release(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[uid]; e != nil {
		l.used.Sub(&e.need)
		delete(l.entries, uid)
	}
}

// QOS is what the pods of each class have together, for the cgroups of the classes.
func (l *Ledger) QOS() QOSSums {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used.qos
}
