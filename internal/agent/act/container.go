package act

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/env"
	"monopod.dev/monopod/internal/agent/loglinks"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podlog"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/agent/userns"
	"monopod.dev/monopod/internal/agent/volumes"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/podstarts"
	"monopod.dev/monopod/internal/pods"
)

// startContainer gets the image, creates the container and starts it.
func (p *Pod) startContainer(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	_, c := pods.ContainerNamed(&pod.Spec, a.Container)
	if c == nil {
		return errors.New("the pod has no container " + a.Container)
	}
	if name := pods.TargetOf(&pod.Spec, c.Name); name != "" && a.Target == "" {
		return p.failedToStart(ctx, pod, c, because(plan.ReasonCreateConfigError, fmt.Errorf("unable to find target container %q: it does not run", name)))
	}
	in := p.sandboxInput(pod, a.Sandbox.Attempt)
	var err error
	if in.IDs, err = p.ids(ctx, pod); err != nil {
		return p.failedToStart(ctx, pod, c, because(plan.ReasonCreateConfigError, err))
	}
	sandbox := podspec.Sandbox(in)
	images := &imageWork{Pod: p, pod: pod, container: c, sandbox: sandbox, quiet: a.Again}
	defer images.release()
	image, err := images.own(ctx)
	if err != nil {
		return p.failedToStart(ctx, pod, c, err)
	}
	shown, err := images.volumes(ctx)
	if err != nil {
		return p.failedToStart(ctx, pod, c, err)
	}
	// What is mounted by a part of a volume is held for the runtime until it has it.
	defer func() {
		if err := p.cfg.Volumes.ReleaseMounts(p.uid, c.Name); err != nil {
			p.cfg.Log.Warn("parts of volumes are mounted for no longer than the pod lives, but longer than needed", "podUID", p.uid, "container", c.Name, "error", err)
		}
	}()
	var cfg *criv1.ContainerConfig
	err = p.call(ctx, podstarts.Configure, c.Name, func() (err error) {
		cfg, err = p.containerConfig(ctx, pod, c, a, image, shown, in.IDs)
		return err
	})
	if err != nil {
		return p.failedToStart(ctx, pod, c, err)
	}
	ctx, cancel := context.WithTimeout(ctx, cri.ChangeTimeout)
	defer cancel()
	var id string
	err = p.call(ctx, podstarts.CallCreateContainer, c.Name, func() (err error) {
		id, err = p.createContainer(ctx, c, &criv1.CreateContainerRequest{PodSandboxId: a.Sandbox.ID, Config: cfg, SandboxConfig: sandbox})
		return err
	})
	if err != nil {
		return p.failedToStart(ctx, pod, c, err)
	}
	p.removeFormer(pod, c, a.Attempt)
	p.Event(pod, c.Name, v1.EventTypeNormal, "Created", "Container created")
	if err := failpoint.Hit("agent/StartContainer/created"); err != nil {
		return p.failedToStart(ctx, pod, c, because(plan.ReasonRunError, err))
	}
	err = p.call(ctx, podstarts.CallStartContainer, c.Name, func() error {
		_, err := p.cfg.Runtime.StartContainer(ctx, &criv1.StartContainerRequest{ContainerId: id})
		return err
	})
	if err != nil {
		return p.failedToStart(ctx, pod, c, because(plan.ReasonRunError, errors.New(lasting(text(err)))))
	}
	p.Event(pod, c.Name, v1.EventTypeNormal, "Started", "Container started")
	link := loglinks.Container{Pod: pod.Name, Namespace: pod.Namespace, Name: c.Name, ID: id}
	if err := p.cfg.LogLinks.Link(link, filepath.Join(p.logDir(pod), podspec.LogPath(c.Name, a.Attempt))); err != nil {
		p.cfg.Log.Warn("there is no link to the log of a container", "pod", pod.Namespace+"/"+pod.Name, "container", c.Name, "error", err)
	}
	return nil
}

// removeFormer removes what earlier runs of a container have left but for the last: their logs, and the files of their termination messages. It looks for them by
// what is there, so that it finds too what an agent that was killed has not removed.
func (p *Pod) removeFormer(pod *v1.Pod, c *v1.Container, attempt uint32) {
	if attempt < 2 {
		return
	}
	logs := filepath.Dir(filepath.Join(p.logDir(pod), podspec.LogPath(c.Name, attempt)))
	if err := errors.Join(podlog.RemoveFormer(logs, attempt-1), p.cfg.Volumes.RemoveMessages(p.uid, c.Name, attempt-1)); err != nil {
		p.cfg.Log.Warn("what earlier runs of a container have left was not removed", "pod", pod.Namespace+"/"+pod.Name, "container", c.Name, "error", err)
	}
}

// failedToStart tells of the failure, unless the start was no longer wanted.
func (p *Pod) failedToStart(ctx context.Context, pod *v1.Pod, c *v1.Container, err error) error {
	if !errors.Is(ctx.Err(), context.Canceled) {
		message := err.Error()
		var why *Failed
		if errors.As(err, &why) && why.Image != "" {
			// An event of its own has told the rest.
			message = why.Reason
		}
		p.Event(pod, c.Name, v1.EventTypeWarning, "Failed", "Error: "+message)
	}
	return err
}

// containerConfig resolves all that the container's configuration refers to. shown are the images of its volumes.
func (p *Pod) containerConfig(
	ctx context.Context, pod *v1.Pod, c *v1.Container, a plan.Action, image *criv1.Image, shown map[string]*criv1.Image, ids *userns.Range,
) (*criv1.ContainerConfig, error) {
	if podspec.NonRoot(pod, c) {
		if err := mustNotBeRoot(podspec.RunAsUser(pod, c), image); err != nil {
			return nil, &Failed{Reason: plan.ReasonCreateConfigError, Lasts: true, Err: err}
		}
	}
	grant, err := p.devicesOf(ctx, pod, c)
	if err != nil {
		return nil, err
	}
	ips := p.podIPs(pod, a.Sandbox)
	told, err := p.cfg.Services.Variables(ctx, pod)
	if err != nil {
		return nil, because(plan.ReasonCreateConfigError, err)
	}
	vars, err := env.Resolve(ctx, env.Input{
		Services: told, Files: func(volume, path string) ([]byte, error) { return p.cfg.Volumes.ReadFile(pod, volume, path) },
		Pod: pod, Container: c, PodIPs: ips, HostIPs: p.cfg.HostIPs, Allocatable: p.cfg.Allocatable(), Objects: p.cfg.Objects,
	})
	if err != nil {
		return nil, ofObjects(plan.ReasonCreateConfigError, err)
	}
	mounts, err := p.cfg.Volumes.Mounts(volumes.MountInput{
		Pod: pod, Container: c, Attempt: a.Attempt, PodIPs: ips, Hostname: podspec.Hostname(pod, p.cfg.NodeName), Env: vars,
		Domain: podspec.HostDomain(pod, p.cfg.ClusterDomain), Images: shown,
		RecursiveReadOnly: func() (bool, error) {
			handler, err := p.runtimeHandler(ctx, pod)
			if err != nil {
				return false, err
			}
			return p.cfg.Runtime.RecursiveReadOnly(ctx, handler)
		},
	})
	if err != nil {
		return nil, because(plan.ReasonCreateConfigError, err)
	}
	if err := os.MkdirAll(filepath.Join(p.logDir(pod), c.Name), 0o755); err != nil {
		return nil, because(plan.ReasonCreateError, err)
	}
	cfg := podspec.Container(podspec.ContainerInput{
		Pod: pod, Container: c, Attempt: a.Attempt, Step: a.Step, ImageRef: image.Id, Image: image, Env: vars, Mounts: mounts, Images: shown,
		Node: p.cfg.Limits(), Target: a.Target, IDs: ids,
	})
	overridden, err := podspec.AddDevices(cfg, c, grant.Answer, grant.Record)
	if err != nil {
		return nil, because(plan.ReasonCreateConfigError, err)
	}
	p.tellOverridden(pod, c, overridden)
	podspec.MapMounts(cfg)
	return cfg, nil
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
