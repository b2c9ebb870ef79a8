package agent

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/agent/source"
	"monopod.dev/monopod/internal/agent/worker"
	"monopod.dev/monopod/internal/kit/podstarts"
	"monopod.dev/monopod/internal/kit/wait"
)

// lookInterval is the least time between two looks at all that the runtime holds.
const lookInterval = time.Second

// rosterConfig is what a roster is made of.
type rosterConfig struct {
	// Source tells which pods there are.
	Source source.Source
	// Workers is what their workers share.
	Workers worker.Config
	// Runtime knows the pods that only it has.
	Runtime interface {
		Pods(ctx context.Context) (map[types.UID]podspec.Ref, error)
	}
	// Sort looks through what was before this start.
	Sort func(ctx context.Context, known knownPods) error
	// Watchers are told of the pods of which something is heard.
	Watchers *watchers
	// Rested is told that a pod is gone with all that it had.
	Rested func()
	// Timeline remembers how pods' starts go; nil: nobody does.
	Timeline *podstarts.Recorder
	Log      *slog.Logger
}

// roster gives each pod of the node its worker: those that the API server has bound to the node, and those that only the
// runtime still knows.
type roster struct {
	cfg rosterConfig
	*watchers
	// relist asks for a look at what the runtime holds beside the known pods.
	relist chan struct{}
	// synced is closed when the pods are known, and known when what they have is, too.
	synced, known chan struct{}
	wg            sync.WaitGroup

	mu      sync.Mutex // guards what follows
	ctx     context.Context
	workers map[types.UID]*worker.Worker
}

func newRoster(cfg rosterConfig) *roster {
	return &roster{
		cfg: cfg, watchers: cfg.Watchers, relist: make(chan struct{}, 1), synced: make(chan struct{}), known: make(chan struct{}), workers: map[types.UID]*worker.Worker{},
	}
}

// run watches until ctx ends, and returns when all workers have ended.
func (p *roster) run(ctx context.Context) {
	p.mu.Lock()
	p.ctx = ctx
	p.mu.Unlock()
	p.wg.Go(func() { p.cfg.Source.Run(ctx, p) })
	if cache.WaitForCacheSync(ctx.Done(), p.cfg.Source.Synced) {
		close(p.synced)
		if p.adopt(ctx) {
			close(p.known)
			p.lookAround(ctx)
		}
	}
	p.wg.Wait()
}

// adopt gives up what pods left that are gone from both the API server and the runtime, and has the devices' ledger compared with what
// runs, before which no pod gets a device. It tries until it has succeeded; false: ctx has ended.
func (p *roster) adopt(ctx context.Context) bool {
	again := retry()
	for told := false; ; told = true {
		err := p.cfg.Sort(ctx, p)
		if err == nil {
			return true
		}
		if !told && ctx.Err() == nil {
			p.cfg.Log.Warn("what was before this start cannot be looked at now; it is tried again, and no devices are granted before", "error", err)
		}
		if wait.For(ctx, again.Step()) != nil {
			return false
		}
	}
}

// lookAround removes pods that the runtime holds and the API server does not know.
func (p *roster) lookAround(ctx context.Context) {
	p.pokeAll()
	var failed <-chan time.Time // nil: the last look has succeeded
	again := retry()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.relist:
		case <-failed:
		}
		// Of many pods that go, each may ask for a look: one is for all of a moment.
		if wait.For(ctx, time.Until(last.Add(lookInterval))) != nil {
			return
		}
		last = time.Now()
		held, err := p.cfg.Runtime.Pods(ctx)
		if err != nil {
			if ctx.Err() == nil && failed == nil {
				p.cfg.Log.Warn("the runtime's pods can't be listed; it is tried again", "error", err)
			}
			failed = time.After(again.Step())
			continue
		}
		failed, again = nil, retry()
		for uid, ref := range held {
			p.orphan(uid, ref)
		}
	}
}

func (p *roster) orphan(uid types.UID, ref podspec.Ref) {
	known := p.uids()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.workers[uid] != nil || slices.Contains(known, uid) {
		return
	}
	p.cfg.Log.Info("the runtime holds a pod that the API server does not know; it is removed", "pod", ref.Namespace+"/"+ref.Name, "podUID", uid)
	p.start(uid, worker.NewOrphan(p.cfg.Workers, ref))
}

// start runs a worker. p.mu is held.
func (p *roster) start(uid types.UID, w *worker.Worker) {
	p.workers[uid] = w
	ctx := p.ctx
	p.wg.Go(func() {
		w.Run(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.workers, uid)
		p.cfg.Rested()
	})
}

// Seen takes a version of a pod.
func (p *roster) Seen(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.workers[pod.UID]; w != nil {
		w.Update(pod)
		return
	}
	traceSeen(p.cfg.Timeline, pod)
	p.start(pod.UID, worker.New(p.cfg.Workers, pod))
}

// Gone takes that the API server no longer has a pod.
func (p *roster) Gone(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.workers[uid]; w != nil {
		w.Gone()
	}
}

// poke tells a pod's worker to look at the runtime again. One that has none may have gone before its sandbox was ready, whose making goes on without it: it is
// looked for.
func (p *roster) poke(uid types.UID) {
	p.mu.Lock()
	w := p.workers[uid]
	p.mu.Unlock()
	if w != nil {
		w.Poke()
	} else {
		p.askAround()
	}
	p.tell(uid)
}

// askAround has the runtime's other pods looked at.
func (p *roster) askAround() {
	select {
	case p.relist <- struct{}{}:
	default:
	}
}

// pokeAll tells all workers, and has the runtime's other pods looked at.
func (p *roster) pokeAll() {
	p.each((*worker.Worker).Poke)
	p.tellAll()
	p.askAround()
}

func (p *roster) devicesChanged() { p.each((*worker.Worker).DevicesChanged) }

func (p *roster) each(f func(*worker.Worker)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		f(w)
	}
}

func (p *roster) uids() []types.UID {
	var uids []types.UID
	for _, pod := range p.cfg.Source.Pods() {
		uids = append(uids, pod.UID)
	}
	return uids
}

// Pod returns the pod as the API server told of it last.
func (p *roster) Pod(namespace, name string) (*v1.Pod, bool) {
	return p.cfg.Source.Pod(namespace, name)
}

// Await returns when all pods of the node are known, or with the cause of the end of ctx.
func (p *roster) Await(ctx context.Context) error {
	select {
	case <-p.synced:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Has says that a pod has a worker.
func (p *roster) Has(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.workers[uid] != nil
}

// Pods returns all pods of the node.
func (p *roster) Pods() []*v1.Pod { return p.cfg.Source.Pods() }
