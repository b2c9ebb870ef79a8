package devices

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/book"
)

// PodRequest asks for the devices of a pod.
type PodRequest struct {
	UID, Namespace, Name string
	// Created is when the pod was: of those that wait for the same devices, the oldest gets them first.
	Created time.Time
	// Containers are in the order in which they start. Those that ask for nothing may be left out.
	Containers []ContainerRequest
	// Counted are the resources, of those that are asked for, that the Node's status counts though they are no devices: somebody has written them there. Where
	// no source has such a one either, the number alone is granted.
	Counted map[string]int64
}

// ContainerRequest is what one container asks for.
type ContainerRequest struct {
	Name string
	Role alloc.Role
	// Resources are the extended resources of the container, by name; entries of 0 ask for nothing.
	Resources map[string]int64
}

// String names the pod.
func (r PodRequest) String() string {
	return fmt.Sprintf("pod %s/%s (%s)", r.Namespace, r.Name, r.UID)
}

// asks is the request as the book decides about it, for all that the containers ask for.
func (r PodRequest) asks() (book.Request, error) {
	req := book.Request{UID: r.UID, Namespace: r.Namespace, Name: r.Name, Created: r.Created, Counted: r.Counted}
	if r.UID == "" {
		return req, fmt.Errorf("a pod that asks for devices needs a UID, got %s: %w", r, errdefs.ErrInvalidArgument)
	}
	for _, c := range r.Containers {
		if c.Name == "" || c.Role != alloc.Main && c.Role != alloc.Init && c.Role != alloc.Sidecar {
			return req, fmt.Errorf("container %q of %s, with role %q: each needs a name and one of the roles: %w", c.Name, r, c.Role, errdefs.ErrInvalidArgument)
		}
		n := book.Need{Container: c.Name, Role: c.Role, Want: map[string]int{}}
		for resource, count := range c.Resources {
			switch {
			case !strings.Contains(resource, "/"):
				return req, fmt.Errorf("%q in container %q of %s is not an extended resource (domain/name): %w", resource, c.Name, r, errdefs.ErrInvalidArgument)
			case count < 0 || count > math.MaxInt32:
				return req, fmt.Errorf("%s: %d in container %q of %s is not a number of devices: %w", resource, count, c.Name, r, errdefs.ErrInvalidArgument)
			case count > 0:
				n.Want[resource] = int(count)
			}
		}
		if len(n.Want) > 0 {
			req.Needs = append(req.Needs, n)
		}
	}
	return req, nil
}
