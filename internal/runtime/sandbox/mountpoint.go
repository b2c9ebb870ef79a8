package sandbox

import (
	"fmt"

	"monopod.dev/monopod/internal/host/mount"
)

// separate gives the folders of the sandboxes a mount of their own, which shares with none. Each sandbox has mounts there, and the kernel goes through all
// that are on a mount whenever something of that mount is bound or becomes a layer of an overlay: without it every pod's start went through
// those of all others, where the run directory is on the mount of the images' and containers' layers.
//
// It has to come before the first of them is mounted: those that are there, of a version that had no such mount, would be hidden. So it is left to
// the next start that finds none; everything else is the same with and without it.
func (m *Manager) separate() error {
	mounted, err := mount.Below(m.cfg.Folders.Root)
	if err != nil {
		return err
	}
	own, err := mount.Is(m.cfg.Folders.Root)
	if err != nil || len(mounted) > 0 && !own {
		return err
	}
	if err := mount.Separate(m.cfg.Folders.Root); err != nil {
		return fmt.Errorf("a mount for the folders of sandboxes: %w", err)
	}
	m.apart = true
	return nil
}

// Close takes away what the manager itself has on the host, when nothing of a sandbox is left.
func (m *Manager) Close() error {
	mounted, err := mount.Below(m.cfg.Folders.Root)
	if err != nil || len(mounted) != 1 {
		return err
	}
	return mount.Unmount(m.cfg.Folders.Root) // of another's mount in it this takes nothing away
}
