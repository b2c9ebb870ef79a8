package pods

import (
	"iter"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Role is the part that a container plays in its pod.
type Role int

const (
	// Init containers run one after the other, before all others.
	Init Role = iota
	// Sidecar is an init container that is started in its turn and then runs beside the others (restartPolicy Always, KEP-753).
	Sidecar
	// App containers are those that the pod is there for.
	App
	// Ephemeral containers were added to a pod that runs, to look at it.
	Ephemeral
)

// String implements fmt.Stringer.
func (r Role) String() string {
	switch r {
	case Init:
		return "init"
	case Sidecar:
		return "sidecar"
	case App:
		return "app"
	default:
		return "ephemeral"
	}
}

// AmongInit says that a container of the role is one of spec.initContainers.
func (r Role) AmongInit() bool { return r == Init || r == Sidecar }

// Main says that containers of the role run beside each other for the time of the pod: the app containers and the sidecars. The ports of the host are
// theirs, and the pod is ready when they are.
func (r Role) Main() bool { return r == Sidecar || r == App }

// Containers are the containers of a pod with their roles: the init containers, the app containers, the ephemeral ones, each in their order. What is
// given out are the specification's own: who changes one changes the pod.
func Containers(spec *v1.PodSpec) iter.Seq2[Role, *v1.Container] {
	return func(yield func(Role, *v1.Container) bool) {
		for i := range spec.InitContainers {
			c := &spec.InitContainers[i]
			if !yield(roleAmongInit(c), c) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(App, &spec.Containers[i]) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			if !yield(Ephemeral, (*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

func roleAmongInit(c *v1.Container) Role {
	if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
		return Sidecar
	}
	return Init
}

// Place is where a container stands in a specification.
type Place struct {
	Role  Role
	spec  *field.Path
	index int
}

// Path is the path of the container, made at each call: most are never asked for.
func (p Place) Path() *field.Path { return p.spec.Child(p.Role.list()).Index(p.index) }

// ContainersAt are the containers of Containers, each with its place below the path of the specification.
func ContainersAt(spec *v1.PodSpec, path *field.Path) iter.Seq2[Place, *v1.Container] {
	return func(yield func(Place, *v1.Container) bool) {
		at, list := Place{spec: path}, ""
		for role, c := range Containers(spec) {
			if at.Role = role; role.list() != list {
				at.index, list = 0, role.list()
			}
			if !yield(at, c) {
				return
			}
			at.index++
		}
	}
}

// list is the field of a specification that holds the containers of the role.
func (r Role) list() string {
	switch r {
	case Init, Sidecar:
		return "initContainers"
	case App:
		return "containers"
	default:
		return "ephemeralContainers"
	}
}

// Privileged says that a container may do everything that its host may.
func Privileged(c *v1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

// ContainerNamed is the container of a pod that has the name, and its role; nil if there is none.
func ContainerNamed(spec *v1.PodSpec, name string) (Role, *v1.Container) {
	for role, c := range Containers(spec) {
		if c.Name == name {
			return role, c
		}
	}
	return 0, nil
}

// TargetOf is the container whose processes an ephemeral container of the name is to see (targetContainerName); empty: none.
func TargetOf(spec *v1.PodSpec, ephemeral string) string {
	for i := range spec.EphemeralContainers {
		if c := &spec.EphemeralContainers[i]; c.Name == ephemeral {
			return c.TargetContainerName
		}
	}
	return ""
}

// HostUsers says that the users and groups of a pod are the host's, as they are where it does not say otherwise; else it has a user namespace of its own.
func HostUsers(spec *v1.PodSpec) bool { return spec.HostUsers == nil || *spec.HostUsers }

// MountPath is where in a container a volume is mounted: what is not absolute is below the root, as for every kubelet.
func MountPath(m *v1.VolumeMount) string {
	if strings.HasPrefix(m.MountPath, "/") {
		return m.MountPath
	}
	return "/" + m.MountPath
}
