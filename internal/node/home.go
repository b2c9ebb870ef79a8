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
)

// home is where a node lives on the machine: its directories, and the locks in them.
type home struct {
	config *v1alpha1.NodeConfiguration
	// ephemeral: its directories must be new or empty when a process enters, and go when it leaves.
	ephemeral bool
	// resetting: a process enters to remove what is there. keep is what stays when it leaves all the same; empty: nothing.
	resetting bool
	keep      string
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
	folders, err := ownFolders(c)
	errs := []error{err, removeKubeconfig(c)}
	for _, dir := range h.dirs() {
		errs = append(errs, removeFolder(ctx, dir, h.keep))
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

// isWithin says whether a path is dir, or lies in it.
func isWithin(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// removeFolder removes a directory of a node, but for what is to be kept: that stays, with all of the directory's entry that it is in. One that somebody has mounted, a disk of its own say, is emptied and stays mounted: what lies below its mount point
// is not the node's.
func removeFolder(ctx context.Context, dir, keep string) error {
	if keep != "" && isWithin(dir, keep) {
		return nil
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
		if keep != "" && isWithin(keep, path) {
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
