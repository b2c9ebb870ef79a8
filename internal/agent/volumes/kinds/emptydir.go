package kinds

import (
	"context"
	"errors"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod.dev/monopod/internal/agent/volumes/held"
	"monopod.dev/monopod/internal/pods/allocated"
)

// emptyDir is a directory that is empty when the pod begins: on the disk, or in memory. One on the disk that has a size is held to it where the file system can (package held).
type emptyDir struct {
	inDir
	still
	cfg Config
}

// Facts implements Kind.
func (*emptyDir) Facts() Facts { return Facts{Own: true, Holds: true} }

// Setup implements Kind.
func (e *emptyDir) Setup(_ context.Context, vol *Volume) error {
	pod, v, dir := vol.Pod, vol.Spec, vol.Dir
	if err := e.hold(vol); err != nil {
		return err
	}
	if err := mkdir(dir, 0o777); err != nil {
		return err
	}
	mode := os.FileMode(0o777)
	if v.EmptyDir.Medium == v1.StorageMediumMemory {
		mode |= os.ModeSticky // that of a tmpfs unless it is told another one, and so that of a kubelet's
		if err := mountTmpfs(dir, e.memorySize(pod, v.EmptyDir), mode); err != nil {
			return err
		}
	}
	if gid := fsGroup(pod); gid >= 0 {
		if err := os.Chown(dir, -1, gid); err != nil {
			return err
		}
		// Files made below belong to the group as well.
		return os.Chmod(dir, mode|os.ModeSetgid)
	}
	return nil
}

// hold makes the directory of a volume on the disk whose size can be held.
func (*emptyDir) hold(vol *Volume) error {
	src := vol.Spec.EmptyDir
	if src.Medium != v1.StorageMediumDefault || src.SizeLimit == nil || src.SizeLimit.Sign() <= 0 { // a limit of zero is none
		return nil
	}
	pod, name := placeOf(vol.Dir)
	_, err := held.Make(pod, name, vol.Dir, 0o777, src.SizeLimit.Value())
	return err
}

// Teardown implements Kind.
func (*emptyDir) Teardown(_ context.Context, l *Left) error {
	pod, name := placeOf(l.Dir)
	return errors.Join(Unmade(l), held.Release(pod, name, l.Dir))
}

// memorySize is how much a volume in memory may hold, in bytes: what is written there counts as the containers' memory, so never more than the pod may have, or
// all pods; 0: nobody knows.
func (e *emptyDir) memorySize(pod *v1.Pod, src *v1.EmptyDirVolumeSource) (size int64) {
	bound := func(q *resource.Quantity) {
		if v := q.Value(); v > 0 && (size == 0 || v < size) {
			size = v
		}
	}
	all, whole := e.cfg.Allocatable(), allocated.Of(pod).Whole()
	bound(all.Memory())
	bound(whole.Limits.Memory())
	if src.SizeLimit != nil {
		bound(src.SizeLimit)
	}
	return size
}

// mkdir makes a directory of exactly this mode, whatever the umask.
func mkdir(dir string, mode os.FileMode) error {
	if err := os.Mkdir(dir, mode); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	}
	return os.Chmod(dir, mode)
}
