package volumes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/podspec"
)

// MountInput is what a container's mounts depend on.
type MountInput struct {
	Pod       *v1.Pod
	Container *v1.Container
	Attempt   uint32
	// PodIPs and Hostname go into the hosts file.
	PodIPs   []string
	Hostname string
	Env      []podspec.EnvVar
	// Images are those of the volumes of the kind image that the container mounts, by the volume's name.
	Images map[string]*cri.Image
}

// Mounts returns the container's mounts: its volumes, the hosts file and the file of its termination message, which are
// made if they are missing.
func (m *Manager) Mounts(in MountInput) ([]*cri.Mount, error) {
	var mounts []*cri.Mount
	taken := map[string]bool{}
	for _, vm := range in.Container.VolumeMounts {
		mount, err := m.volumeMount(in, vm)
		if err != nil {
			return nil, fmt.Errorf("volumeMount %s of container %s: %w", vm.Name, in.Container.Name, err)
		}
		taken[filepath.Clean(vm.MountPath)] = true
		mounts = append(mounts, mount)
	}
	if !in.Pod.Spec.HostNetwork && !taken["/etc/hosts"] {
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
	if target := in.Container.TerminationMessagePath; target != "" && !taken[filepath.Clean(target)] {
		path, err := m.MessageFile(string(in.Pod.UID), in.Container.Name, in.Attempt)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, &cri.Mount{ContainerPath: target, HostPath: path, SelinuxRelabel: true})
	}
	return mounts, nil
}

func (m *Manager) volumeMount(in MountInput, vm v1.VolumeMount) (*cri.Mount, error) {
	v := volumeOf(in.Pod, vm.Name)
	if v == nil {
		return nil, fmt.Errorf("the pod has no volume of this name")
	}
	out := &cri.Mount{ContainerPath: vm.MountPath, Readonly: vm.ReadOnly, Propagation: cri.MountPropagation_PROPAGATION_PRIVATE}
	if !strings.HasPrefix(out.ContainerPath, "/") {
		out.ContainerPath = "/" + out.ContainerPath
	}
	if p := vm.MountPropagation; p != nil {
		switch *p {
		case v1.MountPropagationHostToContainer:
			out.Propagation = cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case v1.MountPropagationBidirectional:
			out.Propagation = cri.MountPropagation_PROPAGATION_BIDIRECTIONAL
		}
	}
	switch {
	case v.HostPath != nil:
		out.HostPath = v.HostPath.Path
		return out, nil
	case v.Image != nil:
		image := in.Images[v.Name]
		if image == nil {
			return nil, fmt.Errorf("its image %q is not there", v.Image.Reference)
		}
		// The runtime mounts it; nobody can write to an image.
		out.Image = &cri.ImageSpec{Image: image.Id, UserSpecifiedImage: v.Image.Reference}
		out.ImageSubPath, out.Readonly = vm.SubPath, true
		return out, nil
	}
	out.HostPath = m.volumeDir(string(in.Pod.UID), v.Name)
	out.SelinuxRelabel = true
	// What the agent writes from objects is the agent's to change.
	out.Readonly = out.Readonly || v.EmptyDir == nil
	return out, nil
}

func volumeOf(pod *v1.Pod, name string) *v1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

// hostsFile writes the pod's /etc/hosts. A running container has it mounted, so it is written in place.
func (m *Manager) hostsFile(in MountInput) (string, error) {
	dir := m.podDir(string(in.Pod.UID))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "etc-hosts")
	content := hosts(in)
	if old, err := os.ReadFile(path); err == nil && string(old) == content {
		return path, nil
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		return "", err
	}
	return path, os.Chmod(path, 0o644)
}

func hosts(in MountInput) string {
	var b strings.Builder
	b.WriteString("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n" +
		"::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\n" +
		"fe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
	for _, ip := range in.PodIPs {
		b.WriteString(ip + "\t" + in.Hostname + "\n")
	}
	for _, a := range in.Pod.Spec.HostAliases {
		b.WriteString(a.IP + "\t" + strings.Join(a.Hostnames, "\t") + "\n")
	}
	return b.String()
}
