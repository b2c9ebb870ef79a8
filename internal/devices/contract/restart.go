package contract

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/contract/judge"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/plugin"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/kit/wait"
)

// restarts plays a node that starts again, in several ways.
func (r *run) restarts(ctx context.Context, subjects []*subject) {
	names := append(append([]string{}, ofRestarts...), "node/used")
	watched := 0
	for _, s := range subjects {
		if s.watched {
			watched++
		}
		if s.lost != "" {
			r.skip("", s.lost, names...)
			return
		}
	}
	try := r.tryRestarts
	switch watched {
	case 0:
	case len(subjects):
		try = r.tryWatched
	default:
		r.skip("", "some resources are in the plugin watcher's folder, and some register by themselves", names...)
		return
	}
	if err := try(ctx, subjects); err != nil && ctx.Err() == nil {
		r.cfg.Log.Warn("the node's restarts", "error", err)
		r.skip("", err.Error(), r.undone(names)...)
	}
}

// undone are those of the checks that were not made yet.
func (r *run) undone(names []string) (left []string) {
	for _, name := range names {
		done := false
		for _, c := range r.report.Checks {
			done = done || c.Name == name
		}
		if !done {
			left = append(left, name)
		}
	}
	return left
}

func (r *run) tryRestarts(ctx context.Context, subjects []*subject) error {
	whole, err := r.sign(ctx, subjects, r.cfg.Timeout, r.desk.restart)
	if err != nil {
		return err
	}
	r.add(judge.NodeRestarted(whole))
	switch {
	case whole.Ended != "":
		if err := r.startAgain(ctx, subjects); err != nil {
			return err
		}
	case len(whole.Missing) > 0:
		return errors.New("it does not register again")
	}
	r.listAgain(ctx, subjects)
	if whole.Ended != "" {
		r.skip("", "the plugin ends when the node starts", "restart/kubelet-socket", "restart/own-socket", "restart/refused")
		return r.tryNode(ctx, subjects)
	}
	if err := r.trySigns(ctx, subjects, whole.Within); err != nil {
		return err
	}
	if err := r.tryRefusal(ctx, subjects); err != nil {
		return err
	}
	return r.tryNode(ctx, subjects)
}

// tryWatched plays a node that starts again to plugins in the plugin watcher's folder. It removes nothing there: it asks each socket what it is.
func (r *run) tryWatched(ctx context.Context, subjects []*subject) error {
	whole, err := r.sign(ctx, subjects, r.cfg.Timeout, r.desk.watchAgain)
	if err != nil {
		return err
	}
	whole.Watched = true
	r.add(judge.NodeRestarted(whole))
	if len(whole.Missing) > 0 {
		return errors.New("it does not answer the plugin watcher again")
	}
	r.listAgain(ctx, subjects)
	r.skip("", "the plugin is in the plugin watcher's folder: the node comes to it", "restart/kubelet-socket", "restart/own-socket", "restart/refused")
	r.skip("", "the plugin tells the plugin watcher a path that only it sees here", "node/used")
	return nil
}

// listAgain lists the devices of all after the node's start.
func (r *run) listAgain(ctx context.Context, subjects []*subject) {
	for _, s := range subjects {
		r.add(judge.ListedAgain("restart/serves", s.name, r.relistUntil(ctx, s)))
		if s.line != nil {
			s.line.close()
			s.line = nil
		}
	}
}

// sign gives a sign and waits for what comes of it.
func (r *run) sign(ctx context.Context, subjects []*subject, most time.Duration, give func() error) (judge.Restart, error) {
	after := len(r.desk.list(0))
	began := time.Now()
	if err := give(); err != nil {
		return judge.Restart{}, err
	}
	missing := r.awaitAgain(ctx, subjects, after, most)
	res := judge.Restart{Within: time.Since(began), Missing: missing}
	if how, ended := r.program.ended(); ended && len(missing) > 0 {
		res.Ended = how
	}
	return res, ctx.Err()
}

// trySigns gives the two signs one at a time.
func (r *run) trySigns(ctx context.Context, subjects []*subject, took time.Duration) error {
	most := min(r.cfg.Timeout, max(r.pace.sign, 5*took))
	for _, one := range []struct {
		name string
		give func() error
	}{
		{"restart/kubelet-socket", func() error { r.desk.shut(); return r.desk.open() }},
		{"restart/own-socket", r.desk.removeSockets},
	} {
		res, err := r.sign(ctx, subjects, most, one.give)
		if err != nil {
			return err
		}
		r.add(judge.SignNoticed(one.name, res))
		if len(res.Missing) > 0 {
			if err := r.recover(ctx, subjects); err != nil {
				return err
			}
		}
		r.quiet(ctx)
	}
	return nil
}

// recover brings the plugin back to where it is registered.
func (r *run) recover(ctx context.Context, subjects []*subject) error {
	if _, ended := r.program.ended(); ended {
		return r.startAgain(ctx, subjects)
	}
	res, err := r.sign(ctx, subjects, r.cfg.Timeout, r.desk.restart)
	if err != nil {
		return err
	}
	if len(res.Missing) > 0 {
		return r.startAgain(ctx, subjects)
	}
	return nil
}

// tryRefusal refuses the plugin.
func (r *run) tryRefusal(ctx context.Context, subjects []*subject) error {
	after := len(r.desk.list(0))
	r.desk.setRefuse(true)
	defer r.desk.setRefuse(false)
	if err := r.desk.restart(); err != nil {
		return err
	}
	tried := func(all []registration) bool { return len(all) > after }
	if !r.desk.await(ctx, r.cfg.Timeout, r.program.done(), tried) {
		r.skip("", "the plugin did not register again", "restart/refused")
	} else {
		began := time.Now()
		r.desk.await(ctx, r.pace.refused, r.program.done(), func([]registration) bool { return false })
		r.desk.await(ctx, r.pace.untilRetry(r.cfg.Timeout), r.program.done(), func(all []registration) bool { return len(all) > after+1 })
		res := judge.Refusal{Tried: len(r.desk.list(after)), Within: time.Since(began)}
		res.Ended, _ = r.program.ended()
		r.add(judge.Refused(res))
	}
	r.desk.setRefuse(false)
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.recover(ctx, subjects)
}

// again is how long a program that ends at once is left alone before it is started again.
const again = 200 * time.Millisecond

// tryNode has the node's own code take the plugin.
func (r *run) tryNode(ctx context.Context, subjects []*subject) (err error) {
	r.desk.shut()
	src, err := plugin.New(plugin.Config{Dir: r.program.place.plugins, AllocateTimeout: r.cfg.Timeout, Log: r.cfg.Log})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, max(r.pace.node, r.cfg.Timeout))
	changed, ended := make(chan struct{}, 1), make(chan error, 1)
	began := time.Now()
	go func() {
		ended <- src.Run(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	defer func() {
		cancel()
		err = errors.Join(err, <-ended)
	}()
	for _, s := range subjects {
		for healthy(src.Snapshot(), s.name) != len(s.ids) && ctx.Err() == nil {
			select {
			case <-changed:
			case <-r.program.done():
				// Plugins that end when the node starts are started again by others.
				if _, err := r.program.kill(); err != nil {
					return err
				}
				next, err := startWith(r.cfg, r.program.place, r.program.words)
				if err != nil {
					return err
				}
				r.program = next
				if _, ended := r.program.ended(); ended && wait.For(ctx, again) != nil {
					return ctx.Err()
				}
			case <-ctx.Done():
			}
		}
		u, away := used(ctx, src, s, began)
		for away && wait.For(ctx, again) == nil { // it may be registering once more: it has seen several signs
			u, away = used(ctx, src, s, began)
		}
		r.add(judge.UsedByNode(s.name, u))
	}
	return nil
}

func healthy(snap *inventory.Snapshot, resource string) (n int) {
	for _, d := range snap.Of(resource) {
		if d.Unhealthy == "" {
			n++
		}
	}
	return n
}

// used has the node grant a device. away: the plugin was not there for it at the moment.
func used(ctx context.Context, src *plugin.Source, s *subject, began time.Time) (u judge.Used, away bool) {
	snap := src.Snapshot()
	u = judge.Used{Within: time.Since(began), Healthy: healthy(snap, s.name), Want: len(s.ids)}
	for _, p := range snap.Problems {
		if p.Resource == s.name || p.Resource == "" {
			u.Problems = append(u.Problems, p.Message)
		}
	}
	if u.Healthy != u.Want || u.Want == 0 {
		return u, u.Want > 0
	}
	id := s.ids[0]
	if advice := src.Prefer(ctx, s.name, s.ids, nil, 1); len(advice) == 1 {
		id = advice[0]
	}
	c := source.Container{PodUID: "device-test", PodNamespace: "default", PodName: "device-test", Name: "main"}
	err := src.Check(s.name, id, false)
	if err == nil {
		_, err = src.Prepare(ctx, c, s.name, []string{id})
	}
	if err == nil {
		err = src.BeforeStart(ctx, c, s.name, []string{id})
	}
	u.Error, u.Granted = errorWords(err), fmt.Sprintf(", and %.80q was granted", id)
	return u, errdefs.IsUnavailable(err)
}
