package plan

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/kit/ids"
)

// Observed is what the runtime holds of one pod.
type Observed struct {
	Sandboxes  []Sandbox
	Containers []Container
}

// Sandbox is one sandbox of the pod. At most one is in use; the others are left from earlier attempts.
type Sandbox struct {
	ID        ids.SandboxID
	Attempt   uint32
	CreatedAt time.Time
	// Ready: its namespaces and its network are there.
	Ready bool
	// IPs are the pod's addresses, the primary one first; none on the host's network.
	IPs []string
}

// ContainerState is CRI's state of a container.
type ContainerState int

// The states, in the order of a container's life.
const (
	Created ContainerState = iota
	Running
	Exited
	// Unknown: the runtime has the container and cannot tell how it is.
	Unknown
)

// Container is one container of the pod, of any attempt.
type Container struct {
	ID        ids.ContainerID
	Name      string
	SandboxID ids.SandboxID
	// Attempt counts the restarts: 0 is the first container of its name.
	Attempt int32
	// Step is the number of restarts since the back-off was last reset, as it was when this container was made.
	Step int
	// Hash is the hash of the container's specification that it was made from; empty: not known.
	Hash  string
	State ContainerState
	// CreatedAt, StartedAt and FinishedAt are zero when that has not happened.
	CreatedAt, StartedAt, FinishedAt time.Time
	ExitCode                         int32
	// Reason and Message are the runtime's, Message replaced by the termination message where there is one.
	Reason, Message string
	// Image is the reference that the container was made from, ImageRef the image that it resolved to: a digest of a repository, or an id (CRI: image_ref).
	Image, ImageRef string
	// User is who its first process is, as the runtime says; nil: it does not.
	User *v1.ContainerUser
	// StopSignal is the signal that it is stopped with; empty: the runtime does not say.
	StopSignal v1.Signal
	// VolumeImages are the images that its volumes of that kind show, by their names: a digest of a repository, or an ID.
	VolumeImages map[string]string
	// Recursive are the paths in the container whose mounts are read-only with all that is mounted below them.
	Recursive []string
	// lost: not the runtime but the API server's status tells of it.
	lost bool
}

// alive says that the container may have a process.
func (c *Container) alive() bool { return c.State == Running || c.State == Unknown }

// current returns the sandbox in use: the newest one that is ready, or nil.
func (o *Observed) current() *Sandbox {
	var newest *Sandbox
	for i := range o.Sandboxes {
		s := &o.Sandboxes[i]
		if s.Ready && (newest == nil || newer(s, newest)) {
			newest = s
		}
	}
	return newest
}

// sandbox is the one of an ID; nil: it is gone.
func (o *Observed) sandbox(id ids.SandboxID) *Sandbox {
	for i := range o.Sandboxes {
		if o.Sandboxes[i].ID == id {
			return &o.Sandboxes[i]
		}
	}
	return nil
}

func newer(a, b *Sandbox) bool {
	if a.Attempt != b.Attempt {
		return a.Attempt > b.Attempt
	}
	return a.CreatedAt.After(b.CreatedAt)
}

// byName returns the containers of one name, the newest first.
func (o *Observed) byName(name string) []*Container {
	var all []*Container
	for i := range o.Containers {
		if o.Containers[i].Name == name {
			all = append(all, &o.Containers[i])
		}
	}
	slices.SortStableFunc(all, func(a, b *Container) int {
		if a.Attempt != b.Attempt {
			return cmp.Compare(b.Attempt, a.Attempt)
		}
		return b.CreatedAt.Compare(a.CreatedAt)
	})
	return all
}

// anyAlive says that some container may have a process.
func (o *Observed) anyAlive() bool {
	return slices.ContainsFunc(o.Containers, func(c Container) bool { return c.alive() })
}

// fromPrior makes a container of what the API server's status remembers of one that the runtime does not hold, or nil
// when the status tells of none.
func fromPrior(prior *v1.ContainerStatus) *Container {
	if prior == nil {
		return nil
	}
	c := &Container{
		Name: prior.Name, Attempt: prior.RestartCount, State: Exited, Image: prior.Image, ImageRef: prior.ImageID, lost: true,
	}
	t := prior.State.Terminated
	if t == nil && prior.State.Running == nil {
		t = prior.LastTerminationState.Terminated
	}
	switch {
	case t != nil:
		c.ID = bareID(t.ContainerID)
		c.ExitCode, c.Reason, c.Message = t.ExitCode, t.Reason, t.Message
		c.StartedAt, c.FinishedAt = t.StartedAt.Time, t.FinishedAt.Time
	case prior.State.Running != nil:
		c.ID = bareID(prior.ContainerID)
		c.StartedAt = prior.State.Running.StartedAt.Time
		c.ExitCode, c.Reason = UnknownExitCode, ReasonStatusUnknown
		c.Message = "the container was running and the runtime no longer has it; how it ended is not known"
	default:
		return nil
	}
	return c
}
