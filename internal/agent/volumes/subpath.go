package volumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/kit/keyed"
	"monopod.dev/monopod/internal/pods"
)

// What is below a volume's root belongs to the pod, and others may exchange it while it is looked at: a directory may become a link to anywhere on the
// host. So a part of a volume is opened by a lookup that the kernel keeps within the volume, and what was opened is mounted at a place of ours, by its
// descriptor: the runtime gets that place, which no container can change.

// subPath is the part of its volume that a mount shows; empty: all of it.
func subPath(vm *v1.VolumeMount, vars []podspec.EnvVar) (string, error) {
	sub := vm.SubPath
	if vm.SubPathExpr != "" {
		var err error
		if sub, err = expandSubPath(vm.SubPathExpr, vars); err != nil {
			return "", err
		}
	}
	if sub == "" {
		return "", nil
	}
	if filepath.IsAbs(sub) {
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
	}
	if slices.Contains(strings.Split(sub, "/"), "..") {
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", sub)
	}
	return filepath.Clean(sub), nil
}

// expandSubPath replaces the container's variables in a path; each must have a value, or the path would be another one than was meant.
func expandSubPath(expr string, vars []podspec.EnvVar) (string, error) {
	values, missing := map[string]string{}, map[string]bool{}
	for _, v := range vars {
		values[v.Name] = v.Value
	}
	sub := podspec.Expand(expr, func(name string) (string, bool) {
		missing[name] = missing[name] || values[name] == ""
		return values[name], true
	})
	maps.DeleteFunc(missing, func(_ string, without bool) bool { return !without })
	if len(missing) > 0 {
		return "", fmt.Errorf("missing value for %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	return sub, nil
}

// subPathsDir is where parts of volumes are mounted for a container until it has been started.
func (m *Manager) subPathsDir(uid types.UID, containerName string) string {
	return filepath.Join(m.podDir(uid), "subpaths", containerName)
}

// mountSubPath mounts a part of the volume at dir for the container's mount of that index, and returns where. What is not there becomes a directory.
func (m *Manager) mountSubPath(in MountInput, index int, dir, sub string, p mount.Propagation) (string, error) {
	root, err := openat(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(root)
	fd, err := openWithin(root, dir, sub)
	if errors.Is(err, unix.ENOENT) {
		if err = makeWithin(root, dir, sub); err != nil {
			return "", fmt.Errorf("failed to create subPath directory: %w", err)
		}
		fd, err = openWithin(root, dir, sub)
	}
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	place := filepath.Join(m.subPathsDir(in.Pod.UID, in.Container.Name), strconv.Itoa(index))
	if err := makePlace(fd, place); err != nil {
		return "", err
	}
	return place, mount.BindClean(fdPath(fd), place, p)
}

func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// openat is openat2, which may be interrupted, or outrun by somebody who renames.
func openat(dir int, name string, flags, resolve uint64) (int, error) {
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve})
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

var errOutside = errors.New("it leads out of the volume, by a symbolic link")

// openWithin opens what is at sub within the volume of that root, which is at dir. Links are followed as long as they stay within.
func openWithin(root int, dir, sub string) (int, error) {
	fd, err := openat(root, sub, unix.O_PATH, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS)
	if !errors.Is(err, unix.EXDEV) {
		return fd, inVolume(err)
	}
	// A link may go out and come back, as an absolute one does that names a place in the volume by its path on the host. Where it leads is found out by
	// names, which may be wrong by now; then it is opened without any link. Whoever looks for files of the host learns nothing from the error.
	top, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return -1, errOutside
	}
	found, err := filepath.EvalSymlinks(filepath.Join(dir, sub))
	if err != nil {
		return -1, errOutside
	}
	rel, err := filepath.Rel(top, found)
	if err != nil || !filepath.IsLocal(rel) {
		return -1, errOutside
	}
	fd, err = openat(root, rel, unix.O_PATH, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	return fd, inVolume(err)
}

// maxEnvFile is the largest file of variables that is read, in bytes: what a container is started with may not be much more.
const maxEnvFile = 1 << 20

// ReadFile reads a file of an emptyDir of the pod, which its containers have written. Links are followed as a process would that has the volume for its root.
// One that is not there is fs.ErrNotExist.
func (m *Manager) ReadFile(pod *v1.Pod, volume, path string) ([]byte, error) {
	if v := volumeOf(pod, volume); v == nil || pods.KindOf(&v.VolumeSource) != pods.EmptyDirVolume {
		return nil, fmt.Errorf("the pod has no emptyDir of the name %q", volume)
	}
	if err := errors.Join(checkUID(pod.UID), checkElement(volume)); err != nil {
		return nil, err
	}
	root, err := openat(unix.AT_FDCWD, m.volumeDir(pod.UID, volume), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(root)
	// It is looked at before it is opened: to open a FIFO waits, to open a device acts.
	fd, err := openat(root, path, unix.O_PATH, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxEnvFile {
		return nil, fmt.Errorf("it is no regular file of at most %d bytes", maxEnvFile)
	}
	f, err := os.Open(fdPath(fd))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxEnvFile))
}

// inVolume says of an error of a lookup what it means for the volume's user.
func inVolume(err error) error {
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return err
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ELOOP):
		return errOutside
	}
	return fmt.Errorf("look it up: %w", err)
}

// makeWithin makes the directories that are missing on the way to sub, with the mode of the volume's root.
func makeWithin(root int, dir, sub string) error {
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return err
	}
	parts := strings.Split(sub, "/")
	at, err := unix.Dup(root)
	if err != nil {
		return err
	}
	defer func() { unix.Close(at) }()
	for i, name := range parts {
		next, err := openWithin(root, dir, filepath.Join(parts[:i+1]...))
		if errors.Is(err, unix.ENOENT) {
			next, err = makeIn(at, name, st.Mode&0o7777)
		}
		if err != nil {
			return err
		}
		unix.Close(at)
		at = next
	}
	return nil
}

// makeIn makes a directory in the one that is open, and opens it.
func makeIn(dir int, name string, mode uint32) (int, error) {
	if err := unix.Mkdirat(dir, name, mode&0o777); err != nil {
		return -1, fmt.Errorf("make %s: %w", name, err)
	}
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", name, err)
	}
	// Whatever the umask; and the group of the volume's root is handed down where it is set there.
	if err := unix.Fchmod(fd, mode); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("set the mode of %s: %w", name, err)
	}
	return fd, nil
}

// makePlace makes what the open file, or directory, can be mounted on.
func makePlace(fd int, place string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(place), 0o750); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return os.Mkdir(place, 0o750)
	}
	return os.WriteFile(place, nil, 0o600)
}

// ReleaseMounts takes away what Mounts has mounted on the host for a container, which needs it until the runtime has started it; nothing there is no error.
// Until then, and before the pod's volumes go, it costs every new mount namespace of the host a copy, and keeps directories from being removed.
func (m *Manager) ReleaseMounts(uid types.UID, containerName string) error {
	if err := errors.Join(checkUID(uid), checkElement(containerName)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), clearTime)
	defer cancel()
	return m.places.clear(ctx, m.subPathsDir(uid, containerName))
}

// clearTime bounds how long places of mounts, which hold nothing, take to be removed; and, once more, how long those who want them cleared wait for it.
const clearTime = time.Minute

// places clears places of mounts. What is mounted there may be a part of a share whose server is silent, and the kernel asks the server when it is only looked at: so it is done by a goroutine that is
// given up, of which there is one a directory.
type places struct {
	clearOf func(dir string) error // clearMounts, but in tests
	turns   keyed.Lock[string]     // held by whoever clears a directory
}

// clear unmounts all below a directory and removes it; nothing there is no error. Where it fails because somebody is silent, what was begun goes on, and nobody else begins before it has ended.
func (p *places) clear(ctx context.Context, dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, clearTime)
	defer cancel()
	unlock, err := p.turns.Lock(ctx, dir)
	if err != nil {
		return fmt.Errorf("what is mounted below %s has not answered since it was to be unmounted before; it is tried again: %w", dir, err)
	}
	done := make(chan error, 1)
	go func() {
		defer unlock()
		done <- p.clearOf(dir)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("what is mounted below %s does not answer: %w", dir, ctx.Err())
	}
}

// clearMounts unmounts all below a directory, which is there, and removes it.
func clearMounts(dir string) error {
	if err := mount.UnmountBelow(dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), clearTime)
	defer cancel()
	return tree.Remove(ctx, dir)
}
