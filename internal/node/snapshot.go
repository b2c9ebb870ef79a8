package node

import (
	"context"
	"fmt"

	"monopod.dev/monopod/internal/apiserver/snapshot"
	"monopod.dev/monopod/internal/host/private"
)

// SnapshotManifest says what a snapshot is of; SnapshotRestored, what was restored of it.
type (
	SnapshotManifest = snapshot.Manifest
	SnapshotRestored = snapshot.Restored
)

// SnapshotSave writes a snapshot of the API server that runs with these directories. progress may be nil.
func SnapshotSave(ctx context.Context, o Options, file string, progress func(step string, done, total int64)) (SnapshotManifest, error) {
	return snapshot.Save(ctx, snapshot.SaveConfig{
		DataDir: o.Config.DataDir, RunDir: o.Config.RunDir, File: file, Node: o.Config.NodeName, Version: o.Version, Progress: progress,
	})
}

// SnapshotRestore makes the API server's data of a snapshot. A node that runs is an error that names it. With force data that is there is moved
// aside. progress may be nil.
func SnapshotRestore(ctx context.Context, o Options, file string, force bool, progress func(step string, done, total int64)) (SnapshotRestored, error) {
	if err := private.Dir(o.Config.DataDir); err != nil {
		return SnapshotRestored{}, fmt.Errorf("make directory: %w", err)
	}
	unlock, err := stopped(o.Config, true)
	if err != nil {
		return SnapshotRestored{}, err
	}
	defer unlock()
	return snapshot.Restore(ctx, snapshot.RestoreConfig{File: file, DataDir: o.Config.DataDir, Force: force, Log: o.Log, Progress: progress})
}
