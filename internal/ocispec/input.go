package ocispec

import (
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Input is all that Build needs to know. Build does not change it and keeps nothing of it.
type Input struct {
	Sandbox   *cri.PodSandboxConfig
	Container *cri.ContainerConfig
	Image     imagespec.ImageConfig

	// RootFS is the absolute path of the mounted root file system.
	RootFS string
	// User is what ResolveUser found in the root file system's passwd and group.
	User ResolvedUser
	// Hostname is what $HOSTNAME says: the sandbox's, or the node's for a sandbox in the host's UTS namespace.
	Hostname   string
	Namespaces Namespaces
	// CgroupsPath is the container's own cgroup, absolute, in cgroupfs syntax, or a scope of systemd: SLICE:PREFIX:NAME.
	CgroupsPath string
	// Mounts are Container.Mounts, resolved one by one.
	Mounts []ResolvedMount
	// Declared are the volumes that the image declares, at places that no mount has.
	Declared []ResolvedMount
	// Files are the sandbox's own files.
	Files SandboxFiles
	// Devices are Container.Devices, resolved; one that stands for a directory of devices gives several.
	Devices []Device
	// Seccomp is the loaded profile for SeccompFor's answer, or nil when that is none or when the caller adds the default
	// one to the finished specification. It is ignored for a privileged container.
	Seccomp *specs.LinuxSeccomp
	// SELinux are ContainerLabels' answer.
	SELinux SELinuxLabels
	Host    Host
}

// Namespaces are the namespaces that the container joins. Its mount namespace is always its own.
type Namespaces struct {
	// Network, IPC and UTS are the paths of the sandbox's pinned namespaces; empty: the host's.
	Network, IPC, UTS string
	// User is the path of the sandbox's user namespace, to which the others belong; empty: the host's.
	User string
	// PID is the path of the PID namespace to join; empty: a new one, or the host's with HostPID.
	PID     string
	HostPID bool
}

// ResolvedMount is a CRI mount with the host path that it comes down to.
type ResolvedMount struct {
	Mount *cri.Mount
	// Source exists and is free of symbolic links; for a mount of an image it is where the image is mounted, its owners translated
	// already.
	Source string
}

// SandboxFiles are host paths that every container of a sandbox gets; an empty one is left out.
type SandboxFiles struct {
	ResolvConf, Hosts, Hostname string // files, mounted below /etc
	Shm                         string // directory, mounted at /dev/shm: the sandbox's tmpfs, or the host's with the host's IPC
}

// Device is a device node of the host and where it appears in the container.
type Device struct {
	Path         string // within the container
	Type         string // "c", "b" or "p"
	Major, Minor int64
	FileMode     uint32 // permission bits
	UID, GID     uint32
	Permissions  string // for the device cgroup, of "rwm"; empty: "rwm"
}

// Host is what this host can do, and how it is set.
type Host struct {
	// Capabilities are those a container can get at most: the bounding set of the executor, by name ("CAP_CHOWN"). What a
	// container asks for beyond them is left out; Capabilities (the function) says what that was.
	Capabilities []string
	// Devices are all nodes below the host's /dev, for privileged containers.
	Devices []Device
	// CgroupV2: the only hierarchy is v2. On v1 and hybrid hosts it is false.
	CgroupV2 bool
	// SwapLimit: the kernel counts swap against cgroups.
	SwapLimit bool
	// HugepageSizes that can be limited ("2MB"); empty without the controller hugetlb.
	HugepageSizes []string
	// MinOOMScoreAdj is the lowest oom_score_adj that can be set here; nil: any. Lower ones are raised to it.
	MinOOMScoreAdj *int
	// AppArmor: the kernel has it, and it is enabled.
	AppArmor bool
	// AppArmorDefault is the name of the default AppArmor profile; empty: there is none.
	AppArmorDefault string
	// SELinux is what labels are made of; nil: containers have none, and NoSELinux says why.
	SELinux   *SELinux
	NoSELinux string
	// SELinuxUnfit: the kernel has SELinux, labels are not switched off, and still they cannot be used (NoSELinux). Only there are
	// options refused that ask for a label.
	SELinuxUnfit bool
	// RecursiveReadOnly: mounts can be made read-only with what is mounted below them.
	RecursiveReadOnly bool
	// DefaultMaskedPaths: containers whose client names neither masked nor read-only paths get the usual ones. A setting.
	DefaultMaskedPaths bool
	// NoUserNamespaces says why pods cannot have user namespaces here; empty: they can.
	NoUserNamespaces string
}
