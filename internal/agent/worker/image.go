package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/plan"
)

// ensureImage has the container's image in place as its pull policy says.
func (w *Worker) ensureImage(ctx context.Context, pod *v1.Pod, c *v1.Container, sandbox *criv1.PodSandboxConfig) (*criv1.Image, error) {
	policy := pullPolicy(c)
	if policy != v1.PullAlways {
		image, err := w.imageStatus(ctx, c.Image)
		if err != nil {
			return nil, because(plan.ReasonImageInspect, err)
		}
		if image != nil {
			w.event(pod, c.Name, v1.EventTypeNormal, "Pulled",
				fmt.Sprintf("Container image %q already present on machine", c.Image))
			return image, nil
		}
		if policy == v1.PullNever {
			msg := fmt.Sprintf("Container image %q is not present with pull policy of Never", c.Image)
			w.event(pod, c.Name, v1.EventTypeWarning, plan.ReasonErrImageNeverPull, msg)
			return nil, because(plan.ReasonErrImageNeverPull, errors.New(msg))
		}
	}
	return w.pull(ctx, pod, c, sandbox)
}

// pullPolicy is the container's policy; the API server has set it unless it serves no defaults.
func pullPolicy(c *v1.Container) v1.PullPolicy {
	if c.ImagePullPolicy != "" {
		return c.ImagePullPolicy
	}
	return v1.PullIfNotPresent
}

// imageStatus is nil for an image that the runtime does not have.
func (w *Worker) imageStatus(ctx context.Context, ref string) (*criv1.Image, error) {
	ctx, cancel := context.WithTimeout(ctx, cri.QueryTimeout)
	defer cancel()
	resp, err := w.cfg.Runtime.Images.ImageStatus(ctx, &criv1.ImageStatusRequest{Image: &criv1.ImageSpec{Image: ref}})
	if status.Code(err) == codes.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("image %q: %s", ref, text(err))
	}
	return resp.Image, nil
}

func (w *Worker) pull(ctx context.Context, pod *v1.Pod, c *v1.Container, sandbox *criv1.PodSandboxConfig) (*criv1.Image, error) {
	w.event(pod, c.Name, v1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", c.Image))
	creds, err := w.credentials(ctx, pod, c.Image)
	if err != nil {
		w.event(pod, "", v1.EventTypeWarning, "FailedToRetrieveImagePullSecret", err.Error())
	}
	if len(creds) == 0 {
		creds = []*criv1.AuthConfig{nil}
	}
	begun := time.Now()
	var errs []string
	for _, auth := range creds {
		// No limit but the pod's life: how long a pull may take is the runtime's to judge.
		resp, err := w.cfg.Runtime.Images.PullImage(ctx, &criv1.PullImageRequest{
			Image: &criv1.ImageSpec{Image: c.Image, Annotations: pod.Annotations}, Auth: auth, SandboxConfig: sandbox,
		})
		if err != nil {
			errs = append(errs, text(err))
			continue
		}
		image, err := w.imageStatus(ctx, resp.ImageRef)
		if err == nil && image == nil {
			err = fmt.Errorf("image %q was pulled as %q and then not found", c.Image, resp.ImageRef)
		}
		if err != nil {
			return nil, because(plan.ReasonImageInspect, err)
		}
		w.event(pod, c.Name, v1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q in %s. Image size: %d bytes.",
			c.Image, time.Since(begun).Round(time.Millisecond), image.Size))
		return image, nil
	}
	msg := fmt.Sprintf("failed to pull image %q: %s", c.Image, strings.Join(errs, "; "))
	if ctx.Err() == nil {
		w.event(pod, c.Name, v1.EventTypeWarning, "Failed", "F"+msg[1:])
	}
	return nil, because(plan.ReasonErrImagePull, errors.New(msg))
}
