// Package volumes makes the files of pods on the host: emptyDir, hostPath, configMap, secret, downwardAPI and projected
// volumes, the hosts file and the files of termination messages. Volumes of the kind image are the runtime's to make.
//
// Layout below the directory of all pods, beside which nothing is remembered:
//
//	UID/volumes/NAME               an emptyDir; a tmpfs when its medium is Memory, no larger than the memory that the pod may have
//	UID/volumes/NAME/..data        the present content of a written volume: a link to a directory beside it, exchanged as
//	                               a whole, so that a reader sees all of one version or all of the other
//	UID/kinds/NAME                 of which kind a volume is, while it holds something of the host
//	UID/claims/NAME                which claim a volume is of, and where it lies (package claims)
//	UID/quotas/NAME                which quota of the file system holds a volume to its size (package held)
//	UID/containers/NAME/ATTEMPT    the termination message of one container
//	UID/subpaths/NAME/INDEX        a part of a volume, mounted there for a container that is being started
//	UID/etc-hosts                  the pod's /etc/hosts
//	.removing                      what was in volumes that are released, until it is removed (package tree)
//	UID/userns                     which IDs of the host the pod's user namespace has (package userns), if it has one
//	UID/verdict                    how the pod is to end (package plan), if that was decided before its containers had ended
//
// Set-up, update and removal are idempotent.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/userns"
	"monopod.dev/monopod/internal/agent/volumes/claims"
	"monopod.dev/monopod/internal/agent/volumes/held"
	"monopod.dev/monopod/internal/agent/volumes/kinds"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/pods"
)

// Config says where pods' files are.
type Config struct {
	// Dir is the directory of all pods.
	Dir string
	// Kinds are what volumes are made from.
	Kinds kinds.Config
	// HeldIDs are the IDs of the host that pods have by the runtime, by their UIDs; nil: nobody knows. It is asked once, before IDs are chosen for the first time.
	HeldIDs func(ctx context.Context) (map[types.UID]userns.Range, error)
	// Log is told of what cannot be removed.
	Log *slog.Logger
	// HostsFile is the node's own hosts file, which pods on its network get. Empty: /etc/hosts.
	HostsFile string
}

// Manager makes and removes the files of pods. It is safe for concurrent use, but for the same volume, and for a pod that is released.
type Manager struct {
	cfg   Config
	kinds map[pods.VolumeKind]kinds.Kind
	ids   sync.Mutex // held while IDs of the host are chosen, so that no two pods get the same
	// compared: what the runtime holds of IDs is on record.
	compared atomic.Bool
	bin      *tree.Bin // volumes that were released
	places   places
}

// New makes a manager; it changes nothing on the host.
func New(cfg Config) *Manager {
	return &Manager{
		cfg: cfg, kinds: kinds.All(cfg.Kinds), bin: tree.NewBin(filepath.Join(cfg.Dir, tree.BinName), cfg.Log),
		places: places{clearOf: clearMounts},
	}
}

func (m *Manager) podDir(uid types.UID) string { return filepath.Join(m.cfg.Dir, string(uid)) }

// checkUID refuses what is no element of a path: a pod's UID may come from a label that anybody wrote.
func checkUID(uid types.UID) error {
	if err := checkElement(string(uid)); err != nil {
		return fmt.Errorf("pod UID %w", err)
	}
	return nil
}

func checkElement(name string) error {
	if !filepath.IsLocal(name) || name == "." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q is no name of a directory: %w", name, errdefs.ErrInvalidArgument)
	}
	return nil
}

func (m *Manager) volumeDir(uid types.UID, name string) string {
	return filepath.Join(m.podDir(uid), "volumes", name)
}

// MakePodDir makes the directory of a pod. By it a pod that is gone is known, so it is there before anything else of the pod's is.
func (m *Manager) MakePodDir(uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	return os.MkdirAll(m.podDir(uid), 0o750)
}

// Setup makes a volume of the pod; one that is there is brought up to date. What fails is said in a kubelet's words.
func (m *Manager) Setup(ctx context.Context, pod *v1.Pod, name string) error {
	if err := m.setup(ctx, pod, name); err != nil {
		return failedSetUp(name, err)
	}
	return nil
}

func (m *Manager) setup(ctx context.Context, pod *v1.Pod, name string) error {
	if err := errors.Join(checkUID(pod.UID), checkElement(name)); err != nil {
		return err
	}
	v, kind, err := m.volume(pod, name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(v.Dir), 0o750); err != nil {
		return err
	}
	if kind.Facts().Holds {
		if err := m.recordKind(pod.UID, name, pods.KindOf(&v.Spec.VolumeSource)); err != nil {
			return err
		}
	}
	return kind.Setup(ctx, v)
}

// volume is a volume of a pod, and its kind.
func (m *Manager) volume(pod *v1.Pod, name string) (*kinds.Volume, kinds.Kind, error) {
	spec := volumeOf(pod, name)
	if spec == nil {
		return nil, nil, errors.New("the pod has no volume of this name")
	}
	kind := m.kinds[pods.KindOf(&spec.VolumeSource)]
	if kind == nil {
		return nil, nil, errors.New("this kind of volume is not supported")
	}
	return &kinds.Volume{Pod: pod, Spec: spec, Dir: m.volumeDir(pod.UID, name)}, kind, nil
}

// failedSetUp says which volume is not there, in a kubelet's words, which people know.
func failedSetUp(volume string, err error) error {
	return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", volume, err)
}

// Following are the names of the pod's volumes that follow what they show.
func (m *Manager) Following(pod *v1.Pod) (names []string) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if kind := m.kinds[pods.KindOf(&v.VolumeSource)]; kind != nil && kind.Facts().Follows {
			names = append(names, v.Name)
		}
	}
	return names
}

// Update brings a volume up to date with what it shows; one that was not set up, or given back, stays as it is.
func (m *Manager) Update(ctx context.Context, pod *v1.Pod, name string) error {
	v, kind, err := m.volume(pod, name)
	if err != nil {
		return failedSetUp(name, err)
	}
	// A pod that has finished has given its volumes back.
	if _, err := os.Lstat(v.Dir); err != nil {
		return nil
	}
	if err := kind.Update(ctx, v); err != nil {
		return failedSetUp(name, err)
	}
	return nil
}

// MessageFile makes the file that a container's termination message is written to, and returns its path.
func (m *Manager) MessageFile(uid types.UID, containerName string, attempt uint32) (string, error) {
	if err := checkUID(uid); err != nil {
		return "", err
	}
	path := m.MessagePath(uid, containerName, attempt)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o666)
	if err != nil {
		return "", err
	}
	defer f.Close()
	// Any user of the container may write it, whatever the umask.
	return path, f.Chmod(0o666)
}

// RemoveMessages removes the termination messages of a container's runs before that one.
func (m *Manager) RemoveMessages(uid types.UID, containerName string, before uint32) error {
	if err := errors.Join(checkUID(uid), checkElement(containerName)); err != nil {
		return err
	}
	dir := filepath.Dir(m.MessagePath(uid, containerName, 0))
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 32); err == nil && uint32(n) < before {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// MessagePath is the path of a container's termination message.
func (m *Manager) MessagePath(uid types.UID, containerName string, attempt uint32) string {
	return filepath.Join(m.podDir(uid), "containers", containerName, strconv.FormatUint(uint64(attempt), 10))
}

// Release tears down and removes the pod's volumes and keeps the termination messages.
func (m *Manager) Release(ctx context.Context, uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	if err := m.places.clear(ctx, filepath.Join(m.podDir(uid), "subpaths")); err != nil {
		return err
	}
	if err := m.teardown(ctx, uid); err != nil {
		return err
	}
	dir := filepath.Join(m.podDir(uid), "volumes")
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return m.forget(uid)
	}
	// Nothing that a container has mounted there, and has its host see, loses what is in it, nor its place.
	mounted, err := mount.At(dir)
	if err != nil {
		return err
	}
	if len(mounted) > 0 {
		return fmt.Errorf("%s is still mounted: unmount it, then %s can be removed", mounted[0], dir)
	}
	if err := m.bin.Throw(ctx, dir); err != nil {
		return err
	}
	return m.forget(uid)
}

// forget drops what is on record of volumes that are gone.
func (m *Manager) forget(uid types.UID) error {
	return errors.Join(claims.Forget(m.podDir(uid)), held.Forget(m.podDir(uid)), m.forgetKinds(uid))
}

// Remove removes all that the pod has.
func (m *Manager) Remove(ctx context.Context, uid types.UID) error {
	if err := m.Release(ctx, uid); err != nil {
		return err
	}
	return tree.Remove(ctx, m.podDir(uid))
}

// Run removes what is in volumes that were released, until ctx ends; what it has not removed, the next one does, also of a process that comes later.
func (m *Manager) Run(ctx context.Context) error { return m.bin.Run(ctx) }

// UIDs lists the pods that have files.
func (m *Manager) UIDs() ([]types.UID, error) {
	entries, err := os.ReadDir(m.cfg.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var uids []types.UID
	for _, e := range entries {
		if e.Name() != tree.BinName {
			uids = append(uids, types.UID(e.Name()))
		}
	}
	return uids, err
}
