// Package podstarts remembers how the starts of the newest pods went, step by step: what `monopod trace` prints.
//
// It guarantees that what it takes is bounded (so many pods, so many steps each; the oldest pod makes room for a new one, and of a pod the first steps stay),
// that a step costs far less than a microsecond and nearly no memory that is thrown away, and that a nil Recorder does nothing. It keeps nothing on
// the disk, and decides nothing: whoever takes a step says when it was.
package podstarts

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Step is something that was done for a pod, or that happened to it.
type Step struct {
	// Name says what: one of the names of this package, a verb of the agent's plan, or a call of CRI.
	Name string
	// Container is the container, or the volume, that it was for; empty: it was for the pod as a whole.
	Container string
	Begin     time.Time
	// End is when it had ended: Begin for what took no time, the zero value for what is under way.
	End time.Time
	// Outcome is empty when it went well, else why it did not, in a word: a reason as the pod's status has it.
	Outcome string
}

// Pod is the time line of a pod.
type Pod struct {
	UID, Namespace, Name string
	// Steps are in the order in which they began; of two that began at once the longer one comes first.
	Steps []Step
	// Dropped is how many steps came after there was no more room for them.
	Dropped int
}

// Limits of a Recorder that says nothing else.
const (
	DefaultPods  = 500
	DefaultSteps = 64
)

// usualSteps is for how many steps there is room from the beginning: those of a pod with two or three containers.
const usualSteps = 24

// Config configures a Recorder.
type Config struct {
	// Pods and Steps are how many pods are remembered, and how many steps of each; 0: the defaults.
	Pods, Steps int
}

// Recorder remembers. It is safe for concurrent use; a nil one remembers nothing.
type Recorder struct {
	cfg   Config
	begun time.Time // what the steps' times count from

	mu   sync.Mutex // guards what follows
	pods map[string]*entry
	// ring has the pods in the order of their coming, from next on when it is full.
	ring []*entry
	next int
}

// entry is a pod. When another one takes its place it is of another generation.
type entry struct {
	uid, namespace, name string
	generation           uint64
	closed               bool
	steps                []step
	dropped              int
}

// step is a Step, its times counted from Recorder.begun.
type step struct {
	name, container, outcome string
	begin, end               time.Duration
}

// underWay is the end of a step that has none yet.
const underWay = time.Duration(-1 << 63)

// New makes a Recorder. Memory is taken as pods come.
func New(cfg Config) *Recorder {
	cfg.Pods, cfg.Steps = cmp.Or(cfg.Pods, DefaultPods), cmp.Or(cfg.Steps, DefaultSteps)
	return &Recorder{cfg: cfg, begun: time.Now(), pods: map[string]*entry{}}
}

// Began is since when it remembers.
func (r *Recorder) Began() time.Time {
	if r == nil {
		return time.Time{}
	}
	return r.begun
}

// Open begins the time line of a pod, unless it has one. Steps of pods without are not taken.
func (r *Recorder) Open(uid, namespace, name string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open(uid, namespace, name)
}

func (r *Recorder) open(uid, namespace, name string) *entry {
	if e := r.pods[uid]; e != nil {
		return e
	}
	var e *entry
	if len(r.ring) < r.cfg.Pods {
		e = &entry{steps: make([]step, 0, min(usualSteps, r.cfg.Steps))}
		r.ring = append(r.ring, e)
	} else {
		e = r.ring[r.next]
		r.next = (r.next + 1) % len(r.ring)
		delete(r.pods, e.uid)
		clear(e.steps) // their strings are no longer held
	}
	*e = entry{uid: uid, namespace: namespace, name: name, generation: e.generation + 1, steps: e.steps[:0]}
	r.pods[uid] = e
	return e
}

// Close ends the time line of a pod: no more steps are taken.
func (r *Recorder) Close(uid string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.pods[uid]; e != nil {
		e.closed = true
	}
}

// Span takes a step that has ended.
func (r *Recorder) Span(uid, name, container string, begin, end time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(r.pods[uid], step{name: name, container: container, begin: begin.Sub(r.begun), end: end.Sub(r.begun)})
}

// Once takes a moment, now, unless there was one of this name already.
func (r *Recorder) Once(uid, name, container string) {
	if r == nil {
		return
	}
	now := time.Since(r.begun)
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.pods[uid]
	if e == nil || e.closed || slices.ContainsFunc(e.steps, func(s step) bool { return s.name == name && s.container == container }) {
		return
	}
	r.add(e, step{name: name, container: container, begin: now, end: now})
}

// add takes a step, if there is room, and returns where it is; -1: nowhere. r.mu is held.
func (r *Recorder) add(e *entry, s step) int {
	switch {
	case e == nil || e.closed:
		return -1
	case len(e.steps) >= r.cfg.Steps:
		e.dropped++
		return -1
	}
	e.steps = append(e.steps, s)
	return len(e.steps) - 1
}

// Ongoing is a step under way. The zero value is none.
type Ongoing struct {
	recorder   *Recorder
	entry      *entry
	generation uint64
	at         int
}

// Begin takes a step that begins now. It is under way until End.
func (r *Recorder) Begin(uid, name, container string) Ongoing {
	if r == nil {
		return Ongoing{}
	}
	now := time.Since(r.begun)
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.pods[uid]
	at := r.add(e, step{name: name, container: container, begin: now, end: underWay})
	if at < 0 {
		return Ongoing{}
	}
	return Ongoing{recorder: r, entry: e, generation: e.generation, at: at}
}

// End ends the step, now. outcome is empty when it went well. It is called once.
func (s Ongoing) End(outcome string) {
	if s.recorder == nil {
		return
	}
	now := time.Since(s.recorder.begun)
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	if s.entry.generation != s.generation { // another pod is in its place
		return
	}
	s.entry.steps[s.at].end, s.entry.steps[s.at].outcome = now, outcome
}

// Pod returns the time line of the newest pod of a name; false: none is remembered.
func (r *Recorder) Pod(namespace, name string) (Pod, bool) {
	if r == nil {
		return Pod{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.ring {
		// From the newest to the oldest: the one before next came last.
		e := r.ring[(r.next-1-i+2*len(r.ring))%len(r.ring)]
		if e.namespace == namespace && e.name == name {
			return r.pod(e), true
		}
	}
	return Pod{}, false
}

// Namespaces are those of the pods of a name that are remembered, in their order.
func (r *Recorder) Namespaces(name string) (namespaces []string) {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.ring {
		if e.name == name {
			namespaces = append(namespaces, e.namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

func (r *Recorder) pod(e *entry) Pod {
	p := Pod{UID: e.uid, Namespace: e.namespace, Name: e.name, Dropped: e.dropped, Steps: make([]Step, len(e.steps))}
	for i, s := range e.steps {
		p.Steps[i] = Step{Name: s.name, Container: s.container, Begin: r.begun.Add(s.begin), Outcome: s.outcome}
		if s.end != underWay {
			p.Steps[i].End = r.begun.Add(s.end)
		}
	}
	Sort(p.Steps)
	return p
}

// Sort puts steps in their order (see Pod).
func Sort(steps []Step) {
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Or(a.Begin.Compare(b.Begin), compareEnds(b.End, a.End)) })
}

// compareEnds takes a step under way for the longest.
func compareEnds(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}
