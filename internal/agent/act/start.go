package act

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/loglinks"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podlog"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/kit/podstarts"
	"monopod.dev/monopod/internal/pods"
)

// Starts makes containers and starts them.
type Starts struct {
	Configs *Configs
	Images  *Images
	Creates *Creates
	Files   StartFiles
	Links   LogLinks
	Tell    *Tell
	Log     *slog.Logger
}

// StartFiles are the files of containers, as far as they are not needed any more once one has been started. Nothing there is no error.
type StartFiles interface {
	// ReleaseMounts takes away what was mounted on the host for a container that the runtime has by now, or will not have.
	ReleaseMounts(uid types.UID, containerName string) error
	// RemoveMessages removes the termination messages of a container's runs before that one.
	RemoveMessages(uid types.UID, containerName string, before uint32) error
}

// start gets the image, creates the container and starts it.
func (s *Starts) start(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	_, c := pods.ContainerNamed(&pod.Spec, a.ContainerName)
	if c == nil {
		return errors.New("the pod has no container " + a.ContainerName)
	}
	if name := pods.TargetOf(&pod.Spec, c.Name); name != "" && a.Target == "" {
		return s.failed(ctx, pod, c, because(plan.ReasonCreateConfigError, fmt.Errorf("unable to find target container %q: it does not run", name)))
	}
	in, err := s.Configs.sandbox(ctx, pod, a.Sandbox.Attempt)
	if err != nil {
		return s.failed(ctx, pod, c, because(plan.ReasonCreateConfigError, err))
	}
	sandbox := podspec.Sandbox(in)
	images := &imageWork{Images: s.Images, pod: pod, container: c, sandbox: sandbox, quiet: a.Again}
	defer images.release()
	image, err := images.own(ctx)
	if err != nil {
		return s.failed(ctx, pod, c, err)
	}
	shown, err := images.volumes(ctx)
	if err != nil {
		return s.failed(ctx, pod, c, err)
	}
	// What is mounted by a part of a volume is held for the runtime until it has it.
	defer func() {
		if err := s.Files.ReleaseMounts(pod.UID, c.Name); err != nil {
			s.Log.Warn("parts of volumes are mounted for no longer than the pod lives, but longer than needed", "podUID", pod.UID, "container", c.Name, "error", err)
		}
	}()
	var cfg *criv1.ContainerConfig
	err = s.Tell.step(ctx, pod, podstarts.Configure, c.Name, func() (err error) {
		cfg, err = s.Configs.container(ctx, pod, c, a, image, shown, in.IDs)
		return err
	})
	if err != nil {
		return s.failed(ctx, pod, c, err)
	}
	ctx, cancel := context.WithTimeout(ctx, cri.ChangeTimeout)
	defer cancel()
	var id ids.ContainerID
	err = s.Tell.step(ctx, pod, podstarts.CallCreateContainer, c.Name, func() (err error) {
		id, err = s.Creates.create(ctx, c.Name, &criv1.CreateContainerRequest{PodSandboxId: string(a.Sandbox.ID), Config: cfg, SandboxConfig: sandbox})
		return err
	})
	if err != nil {
		return s.failed(ctx, pod, c, err)
	}
	s.removeFormer(pod, c, a.Attempt)
	s.Tell.Event(pod, c.Name, v1.EventTypeNormal, "Created", "Container created")
	if err := failpoint.Hit("agent/StartContainer/created"); err != nil {
		return s.failed(ctx, pod, c, because(plan.ReasonRunError, err))
	}
	err = s.Tell.step(ctx, pod, podstarts.CallStartContainer, c.Name, func() error {
		_, err := s.Creates.Runtime.StartContainer(ctx, &criv1.StartContainerRequest{ContainerId: string(id)})
		return err
	})
	if err != nil {
		return s.failed(ctx, pod, c, because(plan.ReasonRunError, errors.New(lasting(text(err)))))
	}
	s.Tell.Event(pod, c.Name, v1.EventTypeNormal, "Started", "Container started")
	link := loglinks.Container{Pod: pod.Name, Namespace: pod.Namespace, Name: c.Name, ID: id}
	if err := s.Links.Link(link, filepath.Join(s.Configs.Node.logDir(pod), podspec.LogPath(c.Name, a.Attempt))); err != nil {
		s.Log.Warn("there is no link to the log of a container", "pod", pod.Namespace+"/"+pod.Name, "container", c.Name, "error", err)
	}
	return nil
}

// removeFormer removes what earlier runs of a container have left but for the last: their logs, and the files of their termination messages. It looks for them by
// what is there, so that it finds too what an agent that was killed has not removed.
func (s *Starts) removeFormer(pod *v1.Pod, c *v1.Container, attempt uint32) {
	if attempt < 2 {
		return
	}
	logs := filepath.Dir(filepath.Join(s.Configs.Node.logDir(pod), podspec.LogPath(c.Name, attempt)))
	if err := errors.Join(podlog.RemoveFormer(logs, attempt-1), s.Files.RemoveMessages(pod.UID, c.Name, attempt-1)); err != nil {
		s.Log.Warn("what earlier runs of a container have left was not removed", "pod", pod.Namespace+"/"+pod.Name, "container", c.Name, "error", err)
	}
}

// failed tells of the failure, unless the start was no longer wanted.
func (s *Starts) failed(ctx context.Context, pod *v1.Pod, c *v1.Container, err error) error {
	if !errors.Is(ctx.Err(), context.Canceled) {
		message := err.Error()
		var why *Failed
		if errors.As(err, &why) && why.Image != "" {
			// An event of its own has told the rest.
			message = why.Reason
		}
		s.Tell.Event(pod, c.Name, v1.EventTypeWarning, "Failed", "Error: "+message)
	}
	return err
}
