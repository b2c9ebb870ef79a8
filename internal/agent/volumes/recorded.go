package volumes

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/volumes/kinds"
	"monopod.dev/monopod/internal/pods"
)

// Of which kind a volume is that holds something of the host is the target of a link in the pod's directory, made before the volume is: whoever takes the volume
// down may know no more of its pod than the directory. A link is there as a whole or not at all. It is not synced, as what the kinds hold is mounts, which
// end with the machine; a kind that holds more than that has to keep it itself.

func (m *Manager) kindsDir(uid types.UID) string { return filepath.Join(m.podDir(uid), "kinds") }

func (m *Manager) recordKind(uid types.UID, name string, kind pods.VolumeKind) error {
	dir := m.kindsDir(uid)
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Symlink(string(kind), filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func (m *Manager) forgetKinds(uid types.UID) error { return os.RemoveAll(m.kindsDir(uid)) }

// teardown takes all volumes of a pod down, each as its kind does: those on record, and those that an agent has made which kept no record.
func (m *Manager) teardown(ctx context.Context, uid types.UID) error {
	down := map[string]pods.VolumeKind{}
	made, err := names(filepath.Join(m.podDir(uid), "volumes"))
	if err != nil {
		return err
	}
	for _, name := range made {
		down[name] = ""
	}
	recorded, err := names(m.kindsDir(uid))
	if err != nil {
		return err
	}
	for _, name := range recorded {
		kind, err := os.Readlink(filepath.Join(m.kindsDir(uid), name))
		if err != nil {
			return err
		}
		down[name] = pods.VolumeKind(kind)
	}
	var errs []error
	for name, kind := range down {
		left := &kinds.Left{PodUID: uid, Name: name, Dir: m.volumeDir(uid, name)}
		if k := m.kinds[kind]; k != nil {
			err = k.Teardown(ctx, left)
		} else {
			err = kinds.Unmade(left)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// names are those of what is in a directory; none where there is no such.
func names(dir string) (all []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all, err
}
