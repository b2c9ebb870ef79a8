package rootfs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/selinux"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// Mounts makes what each mount shows and finds where it is. A missing host path is an error (CRI Mount.host_path), and so
// is one from which mounts cannot be propagated as asked for: the container would wait in vain for them.
func (m *Mounter) Mounts(ctx context.Context, rec *container.Record, sb *sandbox.Record) ([]ocispec.ResolvedMount, error) {
	var all []ocispec.ResolvedMount
	for i, mt := range rec.Config().GetMounts() {
		source, err := m.source(ctx, rec, sb, i)
		if err != nil {
			return nil, fmt.Errorf("mount at %s: %w", mt.GetContainerPath(), err)
		}
		all = append(all, ocispec.ResolvedMount{Mount: mt, Source: source})
	}
	return all, nil
}

func (m *Mounter) source(ctx context.Context, rec *container.Record, sb *sandbox.Record, index int) (string, error) {
	for _, v := range rec.ImageVolumes {
		if v.Mount == index {
			return m.mountImage(ctx, rec, sb, v)
		}
	}
	mt := rec.Config().GetMounts()[index]
	source, err := filepath.EvalSymlinks(mt.GetHostPath())
	if err != nil {
		return "", fmt.Errorf("host_path %s: %w: %w", mt.GetHostPath(), err, errdefs.ErrInvalidArgument)
	}
	if err := checkPropagation(mt, source); err != nil {
		return "", err
	}
	if len(mt.GetUidMappings()) > 0 {
		if err := m.checkIDMap(sb, source); err != nil {
			return "", fmt.Errorf("uidMappings: host_path %s: %w", mt.GetHostPath(), err)
		}
	}
	if err := m.relabel(ctx, rec, mt, source); err != nil {
		return "", err
	}
	if !m.holdsOwn(source) {
		return source, nil
	}
	at := m.volume(rec.ID, index)
	if err := makeTarget(source, at); err != nil {
		return "", err
	}
	return at, mount.BindClean(source, at, mount.Propagation{
		Shared: mt.GetPropagation() == cri.MountPropagation_PROPAGATION_BIDIRECTIONAL,
		Slave:  mt.GetPropagation() == cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
	})
}

// holdsOwn tells whether the source holds what the runtime has mounted for sandboxes and containers: root file systems and
// pinned namespaces, which other containers must neither see nor keep alive.
func (m *Mounter) holdsOwn(source string) bool {
	return source == "/" || source == m.run || strings.HasPrefix(m.run, source+"/") || strings.HasPrefix(source, m.run+"/")
}

// makeTarget makes what the source can be bound to: a directory, or a file.
func makeTarget(source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.MkdirAll(target, 0o700)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return err
	}
	return os.WriteFile(target, nil, 0o600)
}

func checkPropagation(mt *cri.Mount, source string) error {
	wanted := mt.GetPropagation()
	if wanted == cri.MountPropagation_PROPAGATION_PRIVATE {
		return nil
	}
	p, err := mount.PropagationOf(source)
	if err != nil {
		return err
	}
	if p.Shared || p.Slave && wanted == cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER {
		return nil
	}
	return fmt.Errorf("propagation %s: host_path %s is on a mount that does not share (mount --make-rshared changes that): %w",
		wanted, source, errdefs.ErrFailedPrecondition)
}

// relabel gives what a mount shows to the container, if the mount asks for that.
func (m *Mounter) relabel(ctx context.Context, rec *container.Record, mt *cri.Mount, source string) error {
	if !mt.GetSelinuxRelabel() || rec.SELinux.Mount == "" {
		return nil
	}
	if source == m.run || strings.HasPrefix(m.run, strings.TrimSuffix(source, "/")+"/") {
		return fmt.Errorf("selinux_relabel: host_path %s holds the files of all pods: %w", source, errdefs.ErrInvalidArgument)
	}
	if err := selinux.Relabel(ctx, source, rec.SELinux.Mount); err != nil {
		return fmt.Errorf("selinux_relabel: %w", err)
	}
	return nil
}
