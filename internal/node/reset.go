package node

import (
	"context"
	"errors"

	"monopod.dev/monopod/internal/network/choice"
)

// Reset removes all that a node with this configuration has made on the host: its pods, the executor, the network and
// the directories. The node itself must be stopped (its locks say so otherwise). It may be repeated.
func Reset(ctx context.Context, o Options) (err error) {
	o.Ephemeral, o.resetting = false, true // the directories need not be empty
	unlock, err := o.enter(allParts...)
	if err != nil {
		return err
	}
	if o.bridgeIsAnothers() {
		// What that node's pods are connected by is none of ours.
		c := *o.Config
		c.Network.Mode = choice.CNI
		o.Config = &c
	}
	rt, err := o.newRuntime(ctx, false, false)
	if err != nil {
		unlock()
		return err
	}
	if err := errors.Join(o.removeAll(rt), rt.close()); err != nil {
		unlock()
		return err
	}
	o.Ephemeral = true
	return o.leave(unlock)
}
