package store

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/snapshots"
)

// sums remembers what the store takes until something of it changes: kubelets ask every few seconds, and stores change rarely.
// Layers never change, so that after a change only new ones are looked up.
type sums struct {
	content content.Store
	snaps   snapshots.Snapshotter

	changes atomic.Uint64

	mu     sync.Mutex // held while the sums are made
	valid  bool
	at     uint64 // the number of changes when they were made
	layers map[string]layerUsage
	bytes  uint64
	inodes uint64
}

type layerUsage struct {
	created time.Time // tells a layer from one that was removed and made again
	usage   snapshots.Usage
}

// changed says that the store may take something else now.
func (m *sums) changed() { m.changes.Add(1) }

// of is what layers, manifests and configurations take.
func (m *sums) of(ctx context.Context) (usedBytes, inodes uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.changes.Load() // a change while the sums are made lets the next call make them again
	if m.valid && m.at == at {
		return m.bytes, m.inodes, nil
	}
	var infos []snapshots.Info
	if err := m.snaps.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if info.Kind == snapshots.KindCommitted {
			infos = append(infos, info)
		}
		return nil
	}); err != nil {
		return 0, 0, err
	}
	layers := make(map[string]layerUsage, len(infos))
	for _, info := range infos {
		l, known := m.layers[info.Name]
		if !known || !l.created.Equal(info.Created) {
			if l.usage, err = m.snaps.Usage(ctx, info.Name); err != nil {
				continue // removed since
			}
			l.created = info.Created
		}
		layers[info.Name] = l
		usedBytes += uint64(l.usage.Size) // a size is not negative
		inodes += uint64(l.usage.Inodes)  // nor is a number of files
	}
	if err := m.content.Walk(ctx, func(info content.Info) error {
		usedBytes += uint64(info.Size) // nor is this
		inodes++
		return nil
	}); err != nil {
		return 0, 0, err
	}
	m.valid, m.at, m.layers, m.bytes, m.inodes = true, at, layers, usedBytes, inodes
	return usedBytes, inodes, nil
}
