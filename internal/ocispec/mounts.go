package ocispec

import (
	"path"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mounts are the default ones, the sandbox's files, the image's volumes and CRI's, a parent always before what lies in it. A CRI mount takes the
// place of any other on the same path, and one on /dev that of all kernel file systems below it.
func mounts(in Input) []specs.Mount {
	var (
		all      []specs.Mount
		replaced = map[string]bool{}
	)
	for _, m := range in.Mounts {
		replaced[path.Clean(m.Mount.GetContainerPath())] = true
	}
	for _, m := range kernelMounts(in) {
		if !replaced[m.Destination] && !(replaced["/dev"] && strings.HasPrefix(m.Destination, "/dev/")) {
			all = append(all, m)
		}
	}
	for _, m := range sandboxMounts(in) {
		if !replaced[m.Destination] {
			all = append(all, m)
		}
	}
	for _, m := range slices.Concat(in.Declared, in.Mounts) {
		all = append(all, criMount(m))
	}
	depth := func(m specs.Mount) int { return strings.Count(m.Destination, "/") }
	slices.SortStableFunc(all, func(a, b specs.Mount) int { return depth(a) - depth(b) })
	return all
}

// kernelMounts are the file systems that every container has of its own.
func kernelMounts(in Input) []specs.Mount {
	access := "ro"
	if in.Container.GetLinux().GetSecurityContext().GetPrivileged() {
		access = "rw"
	}
	// Group 5 is tty, by convention; with it and mode 0620 no helper with the set-user-ID bit is needed to hand out ptys.
	terminals := []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}
	if _, gid, mapped := UserNamespace(in.Sandbox); !mapped || gid.GetLength() > 5 {
		terminals = append(terminals, "gid=5")
	}
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: terminals},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", access}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", access}},
	}
}

// sandboxMounts are what the containers of a sandbox have in common.
func sandboxMounts(in Input) []specs.Mount {
	access := "rw" // programs rewrite /etc/hosts and /etc/resolv.conf, if they may
	if in.Container.GetLinux().GetSecurityContext().GetReadonlyRootfs() {
		access = "ro"
	}
	var all []specs.Mount
	add := func(source, destination string, options ...string) {
		if source != "" {
			all = append(all, specs.Mount{Destination: destination, Type: "bind", Source: source, Options: append([]string{"rbind", "rprivate"}, options...)})
		}
	}
	add(in.Files.Hosts, "/etc/hosts", access)
	add(in.Files.Hostname, "/etc/hostname", access)
	add(in.Files.ResolvConf, "/etc/resolv.conf", access)
	add(in.Files.Shm, "/dev/shm", "rw", "nosuid", "noexec", "nodev")
	return all
}

func criMount(m ResolvedMount) specs.Mount {
	options := []string{"rbind", propagation(m.Mount.GetPropagation())}
	switch {
	case m.Mount.GetRecursiveReadOnly():
		options = append(options, "ro", "rro")
	case m.Mount.GetReadonly(), m.Mount.GetImage().GetImage() != "":
		options = append(options, "ro")
	default:
		options = append(options, "rw")
	}
	mt := specs.Mount{
		Destination: path.Clean(m.Mount.GetContainerPath()),
		Type:        "bind",
		Source:      m.Source,
		Options:     append(options, m.Mount.GetMountOptions()...),
	}
	if m.Mount.GetImage().GetImage() == "" {
		mt.UIDMappings, mt.GIDMappings = idMappings(m.Mount.GetUidMappings()...), idMappings(m.Mount.GetGidMappings()...)
	}
	return mt
}

func propagation(p cri.MountPropagation) string {
	switch p {
	case cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		return "rslave"
	case cri.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		return "rshared"
	default:
		return "rprivate"
	}
}

// rootfsPropagation is what the container's whole mount tree needs, for one of its mounts to be able to propagate. Empty: private.
func rootfsPropagation(all []ResolvedMount) string {
	most := cri.MountPropagation_PROPAGATION_PRIVATE
	for _, m := range all {
		most = max(most, m.Mount.GetPropagation())
	}
	if most == cri.MountPropagation_PROPAGATION_PRIVATE {
		return ""
	}
	return propagation(most)
}

// mountOptions are the flags of a single mount (mount(8), FILESYSTEM-INDEPENDENT MOUNT OPTIONS) that CRI may add. Those that
// a field of its own decides (ro, rw, bind, propagation) are not among them.
func mountOptions() []string {
	return []string{"noexec", "exec", "nosuid", "suid", "nodev", "dev", "noatime", "atime", "nodiratime", "diratime",
		"relatime", "norelatime", "strictatime", "nostrictatime", "nosymfollow", "symfollow"}
}

func checkMount(m *cri.Mount, host Host) error {
	field := "mounts[" + m.GetContainerPath() + "]."
	image := m.GetImage().GetImage()
	switch {
	case !path.IsAbs(m.GetContainerPath()) || path.Clean(m.ContainerPath) == "/":
		return invalid(field+"container_path", "%q is not an absolute path below /", m.GetContainerPath())
	case image != "" && m.HostPath != "":
		return invalid(field+"host_path", "%q is given beside image %q: give one of the two", m.HostPath, image)
	case image == "" && !path.IsAbs(m.HostPath):
		return invalid(field+"host_path", "%q is not an absolute path, and no image is given", m.HostPath)
	case image == "" && m.ImageSubPath != "":
		return invalid(field+"image_sub_path", "%q is given without an image", m.ImageSubPath)
	case m.RecursiveReadOnly && !m.Readonly:
		return invalid(field+"recursive_read_only", "needs readonly, too")
	case m.RecursiveReadOnly && m.Propagation != cri.MountPropagation_PROPAGATION_PRIVATE:
		return invalid(field+"recursive_read_only", "needs propagation PROPAGATION_PRIVATE, and it is %s", m.Propagation)
	case m.RecursiveReadOnly && !host.RecursiveReadOnly:
		return unfitHost(field+"recursive_read_only", "this kernel has no mount_setattr (Linux 5.12)")
	}
	if _, known := cri.MountPropagation_name[int32(m.Propagation)]; !known {
		return invalid(field+"propagation", "%d is no MountPropagation", m.Propagation)
	}
	for _, o := range m.MountOptions {
		if !slices.Contains(mountOptions(), o) {
			return invalid(field+"mount_options", "%q is none of %s", o, strings.Join(mountOptions(), ", "))
		}
	}
	return nil
}
