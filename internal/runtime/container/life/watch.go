package life

import (
	"context"
	"errors"
	"slices"
	"sync"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/container"
)

// Watch takes in what the executor tells until ctx ends. After each reconnection the executor tells every state again, so
// that nothing is missed; a container, or a pod's init, that it does not know then has ended unseen.
func (m *Manager) Watch(ctx context.Context) error {
	var inits sync.WaitGroup // a sandbox is stopped beside, because that needs further events
	defer inits.Wait()       // last of all
	initEnded := func(id ids.SandboxID) {
		inits.Go(func() {
			if err := m.cfg.SandboxLife.InitEnded(ctx, id); err != nil && ctx.Err() == nil {
				m.cfg.Log.Error("a sandbox whose init has ended could not be stopped; its client's stop tries again", "sandbox", id, "error", err)
			}
		})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	behind := newLate()
	inits.Go(func() { behind.run(ctx, m.cfg.Containers.Observe, m.cfg.Log) })
	return m.cfg.Executor.Events(ctx, func(e protocol.Event) {
		var err error
		switch {
		case e.Container != nil && e.Container.Kind == protocol.KindPodInit:
			if e.Container.Phase == protocol.Exited {
				initEnded(ids.SandboxID(e.Container.ID))
			}
		case e.Container != nil:
			if err = m.cfg.Containers.Observe(*e.Container); err != nil {
				behind.add(*e.Container)
			}
		case e.Synced:
			err = m.missing(ctx, initEnded)
		}
		if err != nil && ctx.Err() == nil {
			m.cfg.Log.Error("an event of the executor could not be taken in", "error", err)
		}
	})
}

// missing finds the containers that have not ended, and the sandboxes with an init, of which the executor knows nothing. It asks for a list
// of its own: what is older than that is in it.
func (m *Manager) missing(ctx context.Context, initEnded func(sandboxID ids.SandboxID)) error {
	suspects := slices.DeleteFunc(m.cfg.Containers.List(), func(r container.Record) bool { return r.Exit != nil })
	inits := m.cfg.SandboxLife.WithInit()
	if len(suspects)+len(inits) == 0 {
		return nil
	}
	held, err := m.cfg.Executor.List(ctx)
	if err != nil {
		return err
	}
	known := map[ids.ContainerID]bool{}
	for _, s := range held {
		known[s.ID] = true
	}
	var errs []error
	for _, rec := range suspects {
		if !known[rec.ID] {
			errs = append(errs, m.lost(rec.ID, "the executor does not know the container any more"))
		}
	}
	for _, id := range inits {
		if !known[ids.ContainerID(id)] {
			initEnded(id)
		}
	}
	return errors.Join(errs...)
}
