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

// nodeStarts plays a node that starts again, in several ways, to a plugin that has registered.
type nodeStarts struct {
	*notes
	*stage
	subjects []*subject
}

// try plays them all.
func (n *nodeStarts) try(ctx context.Context) {
	names := append(append([]string{}, ofRestarts...), "node/used")
	watched := 0
	for _, s := range n.subjects {
		if s.watched {
			watched++
		}
		if s.lost != "" {
			n.skip("", s.lost, names...)
			return
		}
	}
	play := n.tryRestarts
	switch watched {
	case 0:
	case len(n.subjects):
		play = n.tryWatched
	default:
		n.skip("", "some resources are in the plugin watcher's folder, and some register by themselves", names...)
		return
	}
	if err := play(ctx); err != nil && ctx.Err() == nil {
		n.cfg.Log.Warn("the node's restarts", "error", err)
		n.skip("", err.Error(), n.undone(names)...)
	}
}

func (n *nodeStarts) tryRestarts(ctx context.Context) error {
	whole, err := n.sign(ctx, n.cfg.Timeout, n.desk.restart)
	if err != nil {
		return err
	}
	n.add(judge.NodeRestarted(whole))
	switch {
	case whole.Ended != "":
		if err := n.startAgain(ctx, n.subjects); err != nil {
			return err
		}
	case len(whole.Missing) > 0:
		return errors.New("it does not register again")
	}
	n.listAgain(ctx)
	if whole.Ended != "" {
		n.skip("", "the plugin ends when the node starts", "restart/kubelet-socket", "restart/own-socket", "restart/refused")
		return n.tryNode(ctx)
	}
	if err := n.trySigns(ctx, whole.Within); err != nil {
		return err
	}
	if err := n.tryRefusal(ctx); err != nil {
		return err
	}
	return n.tryNode(ctx)
}

// tryWatched plays a node that starts again to plugins in the plugin watcher's folder. It removes nothing there: it asks each socket what it is.
func (n *nodeStarts) tryWatched(ctx context.Context) error {
	whole, err := n.sign(ctx, n.cfg.Timeout, n.desk.watchAgain)
	if err != nil {
		return err
	}
	whole.Watched = true
	n.add(judge.NodeRestarted(whole))
	if len(whole.Missing) > 0 {
		return errors.New("it does not answer the plugin watcher again")
	}
	n.listAgain(ctx)
	n.skip("", "the plugin is in the plugin watcher's folder: the node comes to it", "restart/kubelet-socket", "restart/own-socket", "restart/refused")
	n.skip("", "the plugin tells the plugin watcher a path that only it sees here", "node/used")
	return nil
}

// listAgain lists the devices of all after the node's start.
func (n *nodeStarts) listAgain(ctx context.Context) {
	for _, s := range n.subjects {
		n.add(judge.ListedAgain("restart/serves", s.name, (&trial{notes: n.notes, stage: n.stage, subject: s}).relistUntil(ctx)))
		if s.line != nil {
			s.line.close()
			s.line = nil
		}
	}
}

// sign gives a sign and waits for what comes of it.
func (n *nodeStarts) sign(ctx context.Context, most time.Duration, give func() error) (judge.Restart, error) {
	after := len(n.desk.list(0))
	began := time.Now()
	if err := give(); err != nil {
		return judge.Restart{}, err
	}
	missing := n.awaitAgain(ctx, n.subjects, after, most)
	res := judge.Restart{Within: time.Since(began), Missing: missing}
	if how, ended := n.program.ended(); ended && len(missing) > 0 {
		res.Ended = how
	}
	return res, ctx.Err()
}

// trySigns gives the two signs one at a time.
func (n *nodeStarts) trySigns(ctx context.Context, took time.Duration) error {
	most := min(n.cfg.Timeout, max(n.pace.sign, 5*took))
	for _, one := range []struct {
		name string
		give func() error
	}{
		{"restart/kubelet-socket", func() error { n.desk.shut(); return n.desk.open() }},
		{"restart/own-socket", n.desk.removeSockets},
	} {
		res, err := n.sign(ctx, most, one.give)
		if err != nil {
			return err
		}
		n.add(judge.SignNoticed(one.name, res))
		if len(res.Missing) > 0 {
			if err := n.recover(ctx); err != nil {
				return err
			}
		}
		n.quiet(ctx)
	}
	return nil
}

// recover brings the plugin back to where it is registered.
func (n *nodeStarts) recover(ctx context.Context) error {
	if _, ended := n.program.ended(); ended {
		return n.startAgain(ctx, n.subjects)
	}
	res, err := n.sign(ctx, n.cfg.Timeout, n.desk.restart)
	if err != nil {
		return err
	}
	if len(res.Missing) > 0 {
		return n.startAgain(ctx, n.subjects)
	}
	return nil
}

// tryRefusal refuses the plugin.
func (n *nodeStarts) tryRefusal(ctx context.Context) error {
	after := len(n.desk.list(0))
	n.desk.setRefuse(true)
	defer n.desk.setRefuse(false)
	if err := n.desk.restart(); err != nil {
		return err
	}
	tried := func(all []registration) bool { return len(all) > after }
	if !n.desk.await(ctx, n.cfg.Timeout, n.program.done(), tried) {
		n.skip("", "the plugin did not register again", "restart/refused")
	} else {
		began := time.Now()
		n.desk.await(ctx, n.pace.refused, n.program.done(), func([]registration) bool { return false })
		n.desk.await(ctx, n.pace.untilRetry(n.cfg.Timeout), n.program.done(), func(all []registration) bool { return len(all) > after+1 })
		res := judge.Refusal{Tried: len(n.desk.list(after)), Within: time.Since(began)}
		res.Ended, _ = n.program.ended()
		n.add(judge.Refused(res))
	}
	n.desk.setRefuse(false)
	if err := ctx.Err(); err != nil {
		return err
	}
	return n.recover(ctx)
}

// again is how long a program that ends at once is left alone before it is started again.
const again = 200 * time.Millisecond

// tryNode has the node's own code take the plugin.
func (n *nodeStarts) tryNode(ctx context.Context) (err error) {
	n.desk.shut()
	src, err := plugin.New(plugin.Config{Dir: n.program.place.plugins, AllocateTimeout: n.cfg.Timeout, Log: n.cfg.Log})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, max(n.pace.node, n.cfg.Timeout))
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
	for _, s := range n.subjects {
		for healthy(src.Snapshot(), s.name) != len(s.ids) && ctx.Err() == nil {
			select {
			case <-changed:
			case <-n.program.done():
				// Plugins that end when the node starts are started again by others.
				if _, err := n.program.kill(); err != nil {
					return err
				}
				next, err := startWith(n.cfg, n.program.place, n.program.words)
				if err != nil {
					return err
				}
				n.program = next
				if _, ended := n.program.ended(); ended && wait.For(ctx, again) != nil {
					return ctx.Err()
				}
			case <-ctx.Done():
			}
		}
		u, away := used(ctx, src, s, began)
		for away && wait.For(ctx, again) == nil { // it may be registering once more: it has seen several signs
			u, away = used(ctx, src, s, began)
		}
		n.add(judge.UsedByNode(s.name, u))
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
