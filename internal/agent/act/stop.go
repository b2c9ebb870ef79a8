package act

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/loglinks"
	"monopod.dev/monopod/internal/agent/plan"
)

// Stops stops containers, and removes them.
type Stops struct {
	Runtime StopRuntime
	Links   LogLinks
	Tell    *Tell
}

// StopRuntime is CRI, as far as containers are ended by it.
type StopRuntime interface {
	StopContainer(ctx context.Context, in *criv1.StopContainerRequest, opts ...grpc.CallOption) (*criv1.StopContainerResponse, error)
	RemoveContainer(ctx context.Context, in *criv1.RemoveContainerRequest, opts ...grpc.CallOption) (*criv1.RemoveContainerResponse, error)
}

// LogLinks are where log shippers find the logs of containers. All methods are idempotent.
type LogLinks interface {
	// Link makes the link of a container to its log.
	Link(c loglinks.Container, log string) error
	// Remove removes it, RemovePod those of all containers of a pod, whose logs are in dir.
	Remove(c loglinks.Container) error
	RemovePod(namespace, name, dir string) error
}

// stop ends a container's processes, by force when its time is over.
func (s *Stops) stop(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	s.Tell.stop(pod, a)
	left := max(time.Until(a.StopBy), 0)
	// CRI knows whole seconds; a fraction that is lost by rounding down would be lost to the container.
	seconds := int64((left + time.Second - 1) / time.Second)
	ctx, cancel := context.WithTimeout(ctx, left+cri.ChangeTimeout)
	defer cancel()
	_, err := s.Runtime.StopContainer(ctx, &criv1.StopContainerRequest{ContainerId: string(a.ContainerID), Timeout: seconds})
	if err != nil && !gone(err) {
		return fmt.Errorf("stop container %s (%s): %s", a.ContainerName, a.ContainerID, text(err))
	}
	return nil
}

func (s *Stops) remove(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	ctx, cancel := context.WithTimeout(ctx, cri.ChangeTimeout)
	defer cancel()
	_, err := s.Runtime.RemoveContainer(ctx, &criv1.RemoveContainerRequest{ContainerId: string(a.ContainerID)})
	if err != nil && !gone(err) {
		return fmt.Errorf("remove container %s: %s", a.ContainerID, text(err))
	}
	return s.Links.Remove(loglinks.Container{Pod: pod.Name, Namespace: pod.Namespace, Name: a.ContainerName, ID: a.ContainerID})
}

// stop tells of a stop that begins, once.
func (t *Tell) stop(pod *v1.Pod, a plan.Action) {
	if a.Told {
		return
	}
	why := a.Why
	if why == "" {
		why = "Stopping container " + a.ContainerName
	}
	t.Event(pod, a.ContainerName, v1.EventTypeNormal, "Killing", why)
}
