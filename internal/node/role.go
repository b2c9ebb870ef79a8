package node

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod.dev/monopod/internal/kit/rollback"
)

// role is a part of a node as its runner knows it: a value, which the type of the part makes. Functions that a role has no use for are nil.
type role struct {
	name string
	// open takes what the role works with, before any role runs. What it has taken when it fails undo and close give back.
	open func(context.Context) error
	// undo takes back what open has made on the host, when the start fails.
	undo func(context.Context) error
	// run works until its context ends, which is no error.
	run func(context.Context) error
	// close gives back what open has taken, when nothing runs any more. The first call is the one that counts.
	close func() error
	// remove takes off the host what the role has made there, in this process and in earlier ones. Nothing runs meanwhile, and what is open is so still. It may be
	// repeated.
	remove func(context.Context) error
}

// work is what a process does.
type work struct {
	// parts are those whose files the process writes, and whose locks it takes.
	parts []part
	// open are the roles in the order in which they open, those of a group side by side. They are closed in the other order.
	open [][]role
	// run are the roles in the order in which they begin to run. They stop one after another in the other order: each may use those before it until its own end.
	run []role
	// remove are the roles whose work goes with an ephemeral node, in the order in which it does.
	remove []role
}

// do runs roles until ctx ends or one of them does.
func (p *process) do(ctx context.Context, w work) (err error) {
	home := home{config: p.Config, ephemeral: p.Ephemeral}
	unlock, err := home.enter(w.parts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, home.leave(unlock)) }()
	opened, err := openAll(ctx, w.open)
	if err == nil {
		err = runAll(ctx, w.run)
	}
	if p.Ephemeral {
		err = errors.Join(err, removeAll(w.remove))
	}
	return errors.Join(err, closeAll(opened))
}

// undoTime bounds the undoing of a start that has failed.
const undoTime = 30 * time.Second

// openAll returns the roles that are to be closed, whether all are open or not. What one of those has made on the host is undone when they are not.
func openAll(ctx context.Context, groups [][]role) (opened []role, err error) {
	undo := rollback.Stack{Bound: undoTime}
	defer func() { err = errors.Join(err, undo.Run(ctx)) }()
	for _, group := range groups {
		opened = append(opened, group...)
		for _, r := range group {
			if r.undo != nil {
				undo.Add("the opening of the role "+r.name, r.undo)
			}
		}
		if err := openGroup(ctx, group); err != nil {
			return opened, err
		}
	}
	undo.Release()
	return opened, nil
}

// openGroup opens side by side. The first that fails ends the others' opening.
func openGroup(ctx context.Context, group []role) error {
	if len(group) == 1 {
		return group[0].open(ctx)
	}
	start, ctx := errgroup.WithContext(ctx)
	for _, r := range group {
		start.Go(func() error { return r.open(ctx) })
	}
	return start.Wait()
}

// runAll returns when all have ended.
func runAll(ctx context.Context, roles []role) error {
	stages := newStages(ctx)
	for _, r := range roles {
		if r.run != nil {
			stages.run(r.name, r.run)
		}
	}
	return stages.wait()
}

// removeAll goes on when one of them fails. What ends the process may have ended before.
func removeAll(roles []role) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	var errs []error
	for _, r := range roles {
		if r.remove != nil {
			errs = append(errs, r.remove(ctx))
		}
	}
	return errors.Join(errs...)
}

func closeAll(opened []role) error {
	var errs []error
	for i := len(opened) - 1; i >= 0; i-- {
		if c := opened[i].close; c != nil {
			errs = append(errs, c())
		}
	}
	return errors.Join(errs...)
}

// idle runs a role that has nothing to do.
func idle(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
