package unpack

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"monopod.dev/monopod/internal/image/document"
)

// unpackLayers brings the layers of an image, the lowest first.
func (un *Unpacker) unpackLayers(ctx context.Context, from Source, layers []document.Layer, track *Tracker) error {
	all := make([]*unpacking, len(layers))
	progress := make([]LayerProgress, len(layers))
	meter := &imageMeter{max: un.Limits.ImageBytes}
	for i, l := range layers {
		all[i] = &unpacking{Layer: l, by: un, from: from, track: track, i: i, meter: meter, ready: make(chan struct{})}
		progress[i] = LayerProgress{Digest: l.Desc.Digest, State: LayerWaiting, Total: l.Desc.Size}
		un.Store.Downloads.Hold(all[i].download())
	}
	track.begin(progress)
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return un.commitLayers(ctx, all) })
	turns := make(chan struct{}, maxLayersAtOnce) // of this image, so that other ones get theirs
	for _, u := range all {
		work.Go(func() error {
			defer close(u.ready)
			err := u.prepare(ctx, turns)
			u.whole = err == nil
			return err
		})
	}
	err := work.Wait()
	for _, u := range all {
		u.end(ctx, false)
	}
	return err
}

// commitLayers makes the layers snapshots that others find, in order, each as soon as it is ready.
func (un *Unpacker) commitLayers(ctx context.Context, all []*unpacking) error {
	var below []string // the chain ids, lowest first
	for _, u := range all {
		select {
		case <-u.ready:
			if !u.whole {
				<-ctx.Done() // prepare's error ends all of them
			}
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !u.exists {
			if err := u.commit(ctx, below); err != nil {
				return fmt.Errorf("layer %s: %w", u.Desc.Digest, err)
			}
		}
		u.end(ctx, true)
		below = append(below, u.Chain)
	}
	return nil
}
