package pods

import (
	"iter"

	v1 "k8s.io/api/core/v1"
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
