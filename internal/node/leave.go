package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/apiserver"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/tree"
)

// leaveTime bounds how long the directories of a node take to be removed, with all files that containers have made in them.
const leaveTime = time.Hour

// leave ends what enter began. An ephemeral node's directories go with it.
func (o *Options) leave(unlock func()) error {
	defer unlock()
	if !o.Ephemeral {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	c := o.Config
	folders, err := o.ownFolders()
	errs := []error{err, o.removeKubeconfig()}
	for _, dir := range []string{c.DataDir, c.RunDir} {
		errs = append(errs, removeFolder(ctx, dir))
	}
	// The agent removes each pod's logs, and the kubeconfig is gone; the folders themselves go when they are empty, and stay when others use them.
	for _, dir := range folders {
		_ = os.Remove(dir)
	}
	return errors.Join(errs...)
}

// removeFolder removes a directory of a node. One that somebody has mounted, a disk of its own say, is emptied and stays mounted: what lies below its mount point
// is not the node's.
func removeFolder(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		// Nothing that is mounted may be emptied with the folder.
		if err := mount.UnmountBelow(path); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, tree.Remove(ctx, path))
	}
	if err := errors.Join(errs...); err != nil {
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

// abandon undoes a start of which one half has failed, whichever half there is.
func (o *Options) abandon(api *apiserver.Server, rt *runtimeRole) error {
	var errs []error
	if api != nil {
		errs = append(errs, api.Close())
	}
	if rt != nil {
		if o.Ephemeral {
			errs = append(errs, o.removeAll(rt))
		}
		errs = append(errs, rt.close())
	}
	return errors.Join(errs...)
}
