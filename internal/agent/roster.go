package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/agent/source"
	"monopod.dev/monopod/internal/agent/worker"
	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/host/tree"
)

// lookInterval is the least time between two looks at all that the runtime holds.
const lookInterval = time.Second

// roster gives each pod of the node its worker: those that the API server has bound to the node, and those that only the
// runtime still knows.
type roster struct {
	cfg     worker.Config
	devices DeviceManager
	source  source.Source
	// cgroups are those of pods; nil: nobody knows which there are.
	cgroups interface{ UIDs() ([]string, error) }
	// relist asks for a look at what the runtime holds beside the known pods.
	relist chan struct{}
	// synced is closed when the pods are known, and known when what they have is, too.
	synced, known chan struct{}
	wg            sync.WaitGroup

	mu       sync.Mutex // guards what follows
	ctx      context.Context
	workers  map[types.UID]*worker.Worker
	watchers map[types.UID][]chan struct{}
}

func newRoster(from source.Source, cfg worker.Config, dev DeviceManager) *roster {
	p := &roster{
		cfg: cfg, devices: dev, source: from, relist: make(chan struct{}, 1), synced: make(chan struct{}), known: make(chan struct{}), workers: map[types.UID]*worker.Worker{},
		watchers: map[types.UID][]chan struct{}{},
	}
	p.cfg.Acted = p.acted
	return p
}

// run watches until ctx ends, and returns when all workers have ended.
func (p *roster) run(ctx context.Context) {
	p.mu.Lock()
	p.ctx = ctx
	p.mu.Unlock()
	p.wg.Go(func() { p.source.Run(ctx, p) })
	p.wg.Go(func() { _ = p.cfg.Volumes.Run(ctx) }) // it ends with its context
	if cache.WaitForCacheSync(ctx.Done(), p.source.Synced) {
		close(p.synced)
		if p.adopt(ctx) {
			close(p.known)
			p.lookAround(ctx)
		}
	}
	p.wg.Wait()
}

// retry is how the agent waits for what it asks the runtime again after an error: hardly at first, then longer and longer.
func retry() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 32, Cap: 10 * time.Second}
}

// adopt gives up what pods left that are gone from both the API server and the runtime, and has the devices' ledger compared with what
// runs, before which no pod gets a device. It tries until it has succeeded; false: ctx has ended.
func (p *roster) adopt(ctx context.Context) bool {
	again := retry()
	for told := false; ; told = true {
		err := p.tryAdopt(ctx)
		if err == nil {
			return true
		}
		if !told && ctx.Err() == nil {
			p.cfg.Log.Warn("what was before this start cannot be looked at now; it is tried again, and no devices are granted before", "error", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(again.Step()):
		}
	}
}

func (p *roster) tryAdopt(ctx context.Context) error {
	held, err := p.cfg.Runtime.Pods(ctx)
	if err != nil {
		return err
	}
	containers, err := p.cfg.Runtime.Containers(ctx)
	if err != nil {
		return err
	}
	live := map[string]bool{}
	for _, uid := range p.uids() {
		live[string(uid)] = true
	}
	for uid := range held {
		live[uid] = true
	}
	if p.devices != nil {
		if err := p.devices.Reconcile(ctx, live, p.holdings(containers)); err != nil {
			return fmt.Errorf("compare the devices' ledger with what runs: %w", err)
		}
	}
	left, err := p.cfg.Volumes.UIDs()
	if err != nil {
		p.cfg.Log.Error("the pods' directories can't be listed", "error", err)
	}
	for _, uid := range left {
		if live[uid] {
			continue
		}
		err := p.removeLogs(ctx, uid)
		if err == nil {
			err = p.cfg.Volumes.Remove(ctx, uid)
		}
		if err != nil {
			p.cfg.Log.Error("the directories of a pod that is gone were not removed", "podUID", uid, "error", err)
		}
	}
	p.removeCgroups(live)
	running := map[string]bool{}
	for _, c := range containers {
		running[c.ID] = c.Running
	}
	if err := p.cfg.LogLinks.Sweep(func(id string) bool { return running[id] }); err != nil {
		p.cfg.Log.Error("links to the logs of containers that are gone were not removed", "error", err)
	}
	return nil
}

// removeCgroups removes those of pods that are gone. One that cannot be removed takes no more than its place.
func (p *roster) removeCgroups(live map[string]bool) {
	if p.cgroups == nil {
		return
	}
	left, err := p.cgroups.UIDs()
	for _, uid := range left {
		if !live[uid] {
			err = errors.Join(err, p.cfg.Cgroups.Remove(uid))
		}
	}
	if err != nil {
		p.cfg.Log.Error("cgroups of pods that are gone were not removed", "error", err)
	}
}

// removeLogs removes the logs of a pod whose name is not known any more.
func (p *roster) removeLogs(ctx context.Context, uid string) error {
	entries, err := os.ReadDir(p.cfg.LogsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		if podspec.IsLogDir(e.Name(), uid) {
			errs = append(errs, tree.Remove(ctx, filepath.Join(p.cfg.LogsDir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// holdings are the containers that may hold devices: a pod that has finished has given its own back, but for what still runs.
func (p *roster) holdings(containers []cri.Container) (all []devices.Holding) {
	finished := map[string]bool{}
	for _, pod := range p.Pods() {
		finished[string(pod.UID)] = pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	}
	for _, c := range containers {
		if !finished[c.Pod.UID] || c.Running {
			all = append(all, devices.Holding{PodUID: c.Pod.UID, PodNamespace: c.Pod.Namespace, PodName: c.Pod.Name, Container: c.Name,
				Record: c.Annotations[devices.Annotation]})
		}
	}
	return all
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
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(last.Add(lookInterval))):
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
			p.orphan(types.UID(uid), ref)
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
	p.start(uid, worker.NewOrphan(p.cfg, ref))
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
		if p.cfg.Shutdown != nil {
			p.cfg.Shutdown.Rested()
		}
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
	p.start(pod.UID, worker.New(p.cfg, pod))
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
func (p *roster) poke(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.workers[types.UID(uid)]; w != nil {
		w.Poke()
	} else {
		p.askAround()
	}
	p.tell(types.UID(uid))
}

// askAround has the runtime's other pods looked at.
func (p *roster) askAround() {
	select {
	case p.relist <- struct{}{}:
	default:
	}
}

// acted tells those who watch a pod of what its worker has done. Where a runtime tells no events they would not hear of it: a pod that comes and goes between
// two lists is in neither of them.
func (p *roster) acted(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tell(uid)
}

// tell ticks for those who watch the pod. p.mu is held.
func (p *roster) tell(uid types.UID) {
	for _, c := range p.watchers[uid] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Watch ticks whenever the runtime's state of the pod may have changed, until stop is called.
func (p *roster) Watch(uid types.UID) (ticks <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers[uid] = append(p.watchers[uid], c)
	return c, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.watchers[uid] = slices.DeleteFunc(p.watchers[uid], func(o chan struct{}) bool { return o == c })
		if len(p.watchers[uid]) == 0 {
			delete(p.watchers, uid)
		}
	}
}

// pokeAll tells all workers, and has the runtime's other pods looked at.
func (p *roster) pokeAll() {
	p.each((*worker.Worker).Poke)
	p.mu.Lock()
	for uid := range p.watchers {
		p.tell(uid)
	}
	p.mu.Unlock()
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
	for _, pod := range p.source.Pods() {
		uids = append(uids, pod.UID)
	}
	return uids
}

// Pod returns the pod as the API server told of it last.
func (p *roster) Pod(namespace, name string) (*v1.Pod, bool) { return p.source.Pod(namespace, name) }

// Await returns when all pods of the node are known, or with the cause of the end of ctx.
func (p *roster) Await(ctx context.Context) error {
	select {
	case <-p.synced:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Pods returns all pods of the node.
func (p *roster) Pods() []*v1.Pod { return p.source.Pods() }
