package volumes

import (
	"errors"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/pods"
)

// MountInput is what a container's mounts depend on.
type MountInput struct {
	Pod       *v1.Pod
	Container *v1.Container
	Attempt   uint32
	// PodIPs, Hostname and Domain go into the hosts file. Domain is that of podspec.HostDomain.
	PodIPs   []string
	Hostname string
	Domain   string
	// Env are the container's variables, which subPathExpr may refer to.
	Env []podspec.EnvVar
	// RecursiveReadOnly says whether the pod's runtime handler can make mounts read-only with all that is mounted below them; it is asked when a mount wants
	// that. Nil: it cannot.
	RecursiveReadOnly func() (bool, error)
	// Images are those of the volumes of the kind image that the container mounts, by the volume's name.
	Images map[string]*cri.Image
}

// Mounts returns the container's mounts: its volumes, the hosts file and the file of its termination message, which are
// made if they are missing. Parts of volumes are mounted on the host for it: ReleaseMounts, when the container has been started, or was not.
func (m *Manager) Mounts(in MountInput) ([]*cri.Mount, error) {
	// What a start before has left.
	if err := m.ReleaseMounts(in.Pod.UID, in.Container.Name); err != nil {
		return nil, err
	}
	var mounts []*cri.Mount
	taken := map[string]bool{}
	shut := map[*cri.Mount]bool{} // volumes of the pod's own that the container has read-only
	for i := range in.Container.VolumeMounts {
		vm := &in.Container.VolumeMounts[i]
		shown, err := m.volumeMount(in, i, vm)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("volumeMount %s of container %s: %w", vm.Name, in.Container.Name, err),
				m.ReleaseMounts(in.Pod.UID, in.Container.Name))
		}
		taken[filepath.Clean(shown.ContainerPath)] = true
		mounts = append(mounts, shown)
		if m.kinds[pods.KindOf(&volumeOf(in.Pod, vm.Name).VolumeSource)].Facts().Own {
			shut[shown] = shown.Readonly
		}
	}
	if !taken["/etc/hosts"] {
		path, err := m.hostsFile(in)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, &cri.Mount{
			ContainerPath: "/etc/hosts", HostPath: path, SelinuxRelabel: true,
			Readonly: in.Container.SecurityContext != nil && in.Container.SecurityContext.ReadOnlyRootFilesystem != nil &&
				*in.Container.SecurityContext.ReadOnlyRootFilesystem,
		})
	}
	// The API takes a relative path, as it does for volumes: below the root.
	if target := filepath.Join("/", in.Container.TerminationMessagePath); target != "/" && !taken[target] {
		path, err := m.MessageFile(in.Pod.UID, in.Container.Name, in.Attempt)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, &cri.Mount{ContainerPath: target, HostPath: path, SelinuxRelabel: true})
	}
	if err := makeNested(mounts, shut); err != nil {
		return nil, errors.Join(fmt.Errorf("container %s: %w", in.Container.Name, err), m.ReleaseMounts(in.Pod.UID, in.Container.Name))
	}
	return mounts, nil
}

func (m *Manager) volumeMount(in MountInput, index int, vm *v1.VolumeMount) (*cri.Mount, error) {
	v, kind, err := m.volume(in.Pod, vm.Name)
	if err != nil {
		return nil, err
	}
	out := &cri.Mount{ContainerPath: pods.MountPath(vm), Readonly: vm.ReadOnly, Propagation: cri.MountPropagation_PROPAGATION_PRIVATE}
	if p := vm.MountPropagation; p != nil {
		switch *p {
		case v1.MountPropagationHostToContainer:
			out.Propagation = cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case v1.MountPropagationBidirectional:
			out.Propagation = cri.MountPropagation_PROPAGATION_BIDIRECTIONAL
		}
	}
	if out.RecursiveReadOnly, err = recursiveReadOnly(vm, in.RecursiveReadOnly); err != nil {
		return nil, err
	}
	sub, err := subPath(vm, in.Env)
	if err != nil {
		return nil, err
	}
	source, err := kind.Mount(v)
	if err != nil {
		return nil, err
	}
	if source.Path == "" && source.Image == "" {
		return nil, fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", vm.Name)
	}
	out.Readonly = out.Readonly || source.ReadOnly
	if source.Image != "" {
		image := in.Images[vm.Name]
		if image == nil {
			return nil, fmt.Errorf("its image %q is not there", source.Image)
		}
		out.Image, out.ImageSubPath = &cri.ImageSpec{Image: image.Id, UserSpecifiedImage: source.Image}, sub
		return out, nil
	}
	out.HostPath, out.SelinuxRelabel = source.Path, kind.Facts().Own
	if sub != "" {
		if out.HostPath, err = m.mountSubPath(in, index, out.HostPath, sub, propagation(out.Propagation)); err != nil {
			return nil, fmt.Errorf("failed to prepare subPath %q: %w", sub, err)
		}
	}
	return out, nil
}

// propagation is what the source of a mount must do so that the mount can do what it is asked for.
func propagation(p cri.MountPropagation) mount.Propagation {
	return mount.Propagation{Shared: p == cri.MountPropagation_PROPAGATION_BIDIRECTIONAL, Slave: p == cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER}
}

// recursiveReadOnly says whether all that is mounted below the mount is read-only as well. can asks the runtime.
func recursiveReadOnly(vm *v1.VolumeMount, can func() (bool, error)) (bool, error) {
	if vm.RecursiveReadOnly == nil || *vm.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !vm.ReadOnly {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", vm.Name)
	}
	if p := vm.MountPropagation; p != nil && *p != v1.MountPropagationNone {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q", vm.Name, *p)
	}
	able := false
	if can != nil {
		var err error
		if able, err = can(); err != nil {
			return false, err
		}
	}
	switch mode := *vm.RecursiveReadOnly; {
	case mode == v1.RecursiveReadOnlyIfPossible, mode == v1.RecursiveReadOnlyEnabled && able:
		return able, nil
	case mode == v1.RecursiveReadOnlyEnabled:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", vm.Name)
	default:
		return false, fmt.Errorf("unknown recursive read-only mode %q", mode)
	}
}

func volumeOf(pod *v1.Pod, name string) *v1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}
