package image

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/snapshots"
)

// FsInfo tells the directory that the store is in, and what the store takes there: bytes and inodes of the unpacked
// layers (as measured when they were unpacked) and of manifests, configurations and downloads.
func (s *Store) FsInfo(ctx context.Context) (mountpoint string, usedBytes, inodes uint64, err error) {
	ctx = s.scope(ctx)
	var names []string
	if err := s.snaps.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if info.Kind == snapshots.KindCommitted {
			names = append(names, info.Name)
		}
		return nil
	}); err != nil {
		return "", 0, 0, fmt.Errorf("usage of image store %s: %w", s.root, err)
	}
	for _, name := range names {
		usage, err := s.snaps.Usage(ctx, name)
		if err != nil {
			continue // removed since
		}
		usedBytes += uint64(usage.Size)
		inodes += uint64(usage.Inodes)
	}
	if err := s.content.Walk(ctx, func(info content.Info) error {
		usedBytes += uint64(info.Size)
		inodes++
		return nil
	}); err != nil {
		return "", 0, 0, fmt.Errorf("usage of image store %s: %w", s.root, err)
	}
	bytes, files, err := s.loads.usage()
	if err != nil {
		return "", 0, 0, fmt.Errorf("usage of image store %s: %w", s.root, err)
	}
	usedBytes, inodes = usedBytes+bytes, inodes+files
	return s.root, usedBytes, inodes, nil
}
