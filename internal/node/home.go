package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/storage"
)

// home is where a node lives on the machine: its directories, and the locks in them.
type home struct {
	config *v1alpha1.NodeConfiguration
	// ephemeral: its directories must be new or empty when a process enters, and go when it leaves.
	ephemeral bool
	// resetting: a process enters to remove what is there. keepVolumes: but for the volumes of claims.
	resetting, keepVolumes bool
}

// enter hides this process's memory, makes the node's directories and takes the locks of the parts that it runs.
func (h *home) enter(parts ...part) (unlock func(), err error) {
	if err := proc.Hide(); err != nil { // it is to hold credentials, and what pods have in their environments
		return nil, err
	}
	c := h.config
	if h.ephemeral {
		for _, dir := range h.dirs() {
			if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
				return nil, fmt.Errorf("--ephemeral removes its directories at the end, but %s is not empty: name new ones with --data-dir and --run-dir", dir)
			}
		}
		if slices.Contains(parts, partAPIServer) {
			if err := newKubeconfig(c); err != nil {
				return nil, err
			}
		}
	}
	// What is in the data directory is reached by nobody but root; what is in the run directory, runtime.New says.
	if err := errors.Join(private.Dir(c.DataDir), private.Passage(c.RunDir)); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	writes := slices.Clone(parts)
	if h.ephemeral {
		// It removes the directories at the end, so nobody else may be in them.
		parts = allParts
	}
	if unlock, err = lock(c.RunDir, parts...); err != nil || h.resetting {
		return unlock, err
	}
	if err := noteFolders(c, writes); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// leaveTime bounds how long the directories of a node take to be removed, with all files that containers have made in them.
const leaveTime = time.Hour

// leave ends what enter began. An ephemeral node's directories go with it.
func (h *home) leave(unlock func()) error {
	defer unlock()
	if !h.ephemeral {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	c := h.config
	free, err := lockVolumes(c)
	if err != nil {
		return err
	}
	defer free()
	keep, err := h.leaveVolumes(ctx)
	if err != nil { // who cannot say what is to be kept removes nothing
		return err
	}
	folders, err := ownFolders(c)
	errs := []error{err, removeKubeconfig(c)}
	for _, dir := range []string{c.DataDir, c.RunDir} {
		errs = append(errs, removeFolder(ctx, dir, keep...))
	}
	// The agent removes each pod's logs, and the kubeconfig is gone; the folders themselves go when they are empty, and stay when others use them.
	for _, dir := range folders {
		_ = os.Remove(dir)
	}
	return errors.Join(errs...)
}

// dirs are the directories of the node.
func (h *home) dirs() []string {
	all := []string{h.config.DataDir, h.config.RunDir}
	if dir := h.config.Storage.Directory; dir != "" {
		all = append(all, dir)
	}
	return all
}

// leaveVolumes removes the volumes of claims, where they are to go, and returns the directories that stay, whatever else goes: what is no volume of this node in
// them is not the node's. All that is in the data directory of an ephemeral node is: it was empty.
func (h *home) leaveVolumes(ctx context.Context) (keep []string, err error) {
	var errs []error
	for _, dir := range volumeDirs(h.config) {
		p, err := storage.New(storage.Config{Dir: dir, NodeName: h.config.NodeName})
		if err == nil {
			err = p.Clear(ctx, !h.keepVolumes)
		}
		errs = append(errs, err)
		whole := !h.resetting && isOneOf(h.config.DataDir, ancestry(dir))
		if whole || !h.keepVolumes && isOneOf(dir, ancestry(h.config.DataDir)) {
			continue // the data directory, which lies among volumes that are gone, goes as ever
		}
		keep = append(keep, dir)
	}
	return keep, errors.Join(errs...)
}

// ancestry is a directory and those above it, as the file system knows them: one has several paths where there are links and bind mounts. nil: it is not there.
func ancestry(dir string) (all []os.FileInfo) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil
	}
	for {
		if info, err := os.Stat(dir); err == nil {
			all = append(all, info)
		}
		if dir == filepath.Dir(dir) {
			return all
		}
		dir = filepath.Dir(dir)
	}
}

// isOneOf says whether a path leads to one of these.
func isOneOf(path string, all []os.FileInfo) bool {
	info, err := os.Stat(path)
	return err == nil && slices.ContainsFunc(all, func(one os.FileInfo) bool { return os.SameFile(one, info) })
}

// same says whether two paths lead to one directory.
func same(a, b string) bool {
	info, err := os.Stat(b)
	return filepath.Clean(a) == filepath.Clean(b) || err == nil && isOneOf(a, []os.FileInfo{info})
}

// removeFolder removes a directory of a node, but for what is to be kept: that stays, with all of the directory's entry that it is in. One that somebody has mounted, a disk of its own say, is emptied and stays mounted: what lies below its mount point
// is not the node's.
func removeFolder(ctx context.Context, dir string, keep ...string) error {
	var above []os.FileInfo // what is to be kept, and all that it lies in
	for _, k := range keep {
		if isOneOf(k, ancestry(dir)) {
			return nil
		}
		above = append(above, ancestry(k)...)
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	kept := false
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if isOneOf(path, above) {
			kept = true
			continue
		}
		// Nothing that is mounted may be emptied with the folder.
		if err := mount.UnmountBelow(path); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, tree.Remove(ctx, path))
	}
	if err := errors.Join(errs...); err != nil || kept {
		return err
	}
	switch err := os.Remove(dir); {
	case errors.Is(err, unix.EBUSY):
		return nil
	case errors.Is(err, unix.ENOTEMPTY): // somebody has written meanwhile
		return tree.Remove(ctx, dir)
	default:
		return err
	}
}
