package act

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/env"
	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/agent/userns"
	"monopod.dev/monopod/internal/agent/volumes"
	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/kit/ids"
)

// Configs makes what the runtime is told of containers and their sandboxes.
type Configs struct {
	Node      *Node
	Handlers  *RuntimeHandlers
	Devices   DeviceGrants
	Variables Variables
	Files     ContainerFiles
	Tell      *Tell
}

// DeviceGrants tells what containers have been granted.
type DeviceGrants interface {
	// Grant returns what a container of an admitted pod is started with, when that is on record. Any error means that it cannot be now.
	Grant(ctx context.Context, pod *v1.Pod, containerName string) (devices.Grant, error)
}

// Variables is where containers' variables come from that are not in the specification.
type Variables struct {
	// Services are what containers are told of by variables.
	Services interface {
		Variables(ctx context.Context, pod *v1.Pod) ([]podspec.EnvVar, error)
	}
	Objects objects.Reader
}

// ContainerFiles are the files of a pod that a container has.
type ContainerFiles interface {
	// Mounts returns the container's mounts, and makes what they need.
	Mounts(in volumes.MountInput) ([]*criv1.Mount, error)
	// Devices returns the volumes that the container has as block devices.
	Devices(pod *v1.Pod, c *v1.Container) ([]*criv1.Device, error)
	// ReadFile reads a file of a volume of the pod's own; one that is not there is fs.ErrNotExist.
	ReadFile(pod *v1.Pod, volume, path string) ([]byte, error)
}

// sandbox is what the sandbox of the pod was made of.
func (f *Configs) sandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (in podspec.SandboxInput, err error) {
	in = f.Node.sandbox(pod, attempt)
	in.IDs, err = f.Handlers.ids(ctx, pod)
	return in, err
}

// container resolves all that the container's configuration refers to. shown are the images of its volumes.
func (f *Configs) container(
	ctx context.Context, pod *v1.Pod, c *v1.Container, a plan.Action, image *criv1.Image, shown map[string]*criv1.Image, mapped *userns.Range,
) (*criv1.ContainerConfig, error) {
	if podspec.NonRoot(pod, c) {
		if err := mustNotBeRoot(podspec.RunAsUser(pod, c), image); err != nil {
			return nil, &Failed{Reason: plan.ReasonCreateConfigError, Lasts: true, Err: err}
		}
	}
	grant, err := f.devicesOf(ctx, pod, c)
	if err != nil {
		return nil, err
	}
	ips := f.Node.podIPs(pod, a.Sandbox)
	told, err := f.Variables.Services.Variables(ctx, pod)
	if err != nil {
		return nil, because(plan.ReasonCreateConfigError, err)
	}
	vars, err := env.Resolve(ctx, env.Input{
		Services: told, Files: func(volume, path string) ([]byte, error) { return f.Files.ReadFile(pod, volume, path) },
		Pod: pod, Container: c, PodIPs: ips, HostIPs: f.Node.IPs, Allocatable: f.Node.Allocatable(), Objects: f.Variables.Objects,
	})
	if err != nil {
		return nil, ofObjects(plan.ReasonCreateConfigError, err)
	}
	mounts, err := f.Files.Mounts(volumes.MountInput{
		Pod: pod, Container: c, Attempt: a.Attempt, PodIPs: ips, Hostname: podspec.Hostname(pod, f.Node.Name), Env: vars,
		Domain: podspec.HostDomain(pod, f.Node.ClusterDomain), Images: shown,
		RecursiveReadOnly: func() (bool, error) { return f.Handlers.recursiveReadOnly(ctx, pod) },
	})
	if err != nil {
		return nil, because(plan.ReasonCreateConfigError, err)
	}
	if err := os.MkdirAll(filepath.Join(f.Node.logDir(pod), c.Name), 0o755); err != nil {
		return nil, because(plan.ReasonCreateError, err)
	}
	cfg := podspec.Container(podspec.ContainerInput{
		Pod: pod, Container: c, Attempt: a.Attempt, Step: a.Step, ImageID: ids.ImageID(image.Id), Image: image, Env: vars, Mounts: mounts, Images: shown,
		Node: f.Node.Limits(), Target: a.Target, IDs: mapped,
	})
	if cfg.Devices, err = f.Files.Devices(pod, c); err != nil {
		return nil, because(plan.ReasonCreateConfigError, err)
	}
	overridden, err := podspec.AddDevices(cfg, c, grant.Answer, grant.Record)
	if err != nil {
		return nil, because(plan.ReasonCreateConfigError, err)
	}
	f.tellOverridden(pod, c, overridden)
	podspec.MapMounts(cfg)
	return cfg, nil
}

// devicesOf are the devices that a container is started with; it may have none.
func (f *Configs) devicesOf(ctx context.Context, pod *v1.Pod, c *v1.Container) (devices.Grant, error) {
	if len(podspec.ExtendedResources(c)) == 0 {
		return devices.Grant{}, nil
	}
	grant, err := f.Devices.Grant(ctx, pod, c.Name)
	var refused *devices.StartError
	if errors.As(err, &refused) {
		return grant, because(plan.ReasonCreateConfigError, err)
	}
	return grant, because(plan.ReasonDevicesNotReady, err)
}

// tellOverridden tells of what a device brings and the container has otherwise by its specification.
func (f *Configs) tellOverridden(pod *v1.Pod, c *v1.Container, names []string) {
	for _, name := range names {
		f.Tell.Event(pod, c.Name, v1.EventTypeWarning, "DeviceEnvironment",
			fmt.Sprintf("a device of the container brings the variable %s with another value; that of the pod's specification is used", name))
	}
}

// mustNotBeRoot says why a container that must not run as root would, or might.
func mustNotBeRoot(user *int64, image *criv1.Image) error {
	switch {
	case user != nil && *user == 0:
		return errors.New("container's runAsUser is 0, and runAsNonRoot is set: choose another user or drop runAsNonRoot")
	case user != nil:
		return nil
	case image.GetUid() != nil && image.GetUid().GetValue() == 0, image.GetUid() == nil && image.GetUsername() == "":
		return errors.New("container has runAsNonRoot and image will run as root: set runAsUser")
	case image.GetUid() == nil:
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root: set runAsUser", image.GetUsername())
	}
	return nil
}
