package act

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/distribution/reference"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/imagekeep"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/kit/podstarts"
	"monopod.dev/monopod/internal/pods"
)

// Images gets the images that containers need.
type Images struct {
	Runtime criv1.ImageServiceClient
	Keeper  ImageKeeper
	// Pulls are the credentials that images are pulled with.
	Pulls Credentials
	Tell  *Tell
}

// ImageKeeper keeps images from being removed.
type ImageKeeper interface {
	// Hold keeps the image of a reference, whichever that is, until the hold is released. It waits for a removal that is under way.
	Hold(ctx context.Context, ref string) (*imagekeep.Hold, error)
}

// imageWork gets the images that one container needs, and keeps them until release.
type imageWork struct {
	*Images
	pod       *v1.Pod
	container *v1.Container
	sandbox   *criv1.PodSandboxConfig
	holds     []*imagekeep.Hold
	// quiet: events have told of the images already, when this was tried before.
	quiet bool
}

// release lets go of the images: by now a container has them, or there is none.
func (w *imageWork) release() {
	for _, h := range w.holds {
		h.Release()
	}
}

// own has the container's image in place.
func (w *imageWork) own(ctx context.Context) (*criv1.Image, error) {
	return w.ensure(ctx, w.container.Image, w.container.ImagePullPolicy)
}

// volumes has the images of the volumes that the container mounts in place, by the volume's name.
func (w *imageWork) volumes(ctx context.Context) (map[string]*criv1.Image, error) {
	images := map[string]*criv1.Image{}
	for _, v := range imageVolumes(w.pod, w.container) {
		image, err := w.ensure(ctx, v.Image.Reference, v.Image.PullPolicy)
		if err != nil {
			return nil, err
		}
		images[v.Name] = image
	}
	return images, nil
}

// imageVolumes are the volumes of the kind image that the container mounts, each once.
func imageVolumes(pod *v1.Pod, c *v1.Container) []*v1.Volume {
	mounted := map[string]bool{}
	for _, m := range c.VolumeMounts {
		mounted[m.Name] = true
	}
	var all []*v1.Volume
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; pods.KindOf(&v.VolumeSource) == pods.ImageVolume && mounted[v.Name] {
			all = append(all, v)
		}
	}
	return all
}

// ImageRefs are the images that a container needs, as its pod names them.
func ImageRefs(pod *v1.Pod, c *v1.Container) []string {
	refs := []string{c.Image}
	for _, v := range imageVolumes(pod, c) {
		refs = append(refs, v.Image.Reference)
	}
	return refs
}

// ensure has an image in place as its pull policy says. It is not removed before release.
func (w *imageWork) ensure(ctx context.Context, ref string, policy v1.PullPolicy) (*criv1.Image, error) {
	if _, err := reference.ParseNormalizedNamed(ref); err != nil {
		msg := fmt.Sprintf("Failed to apply default image tag %q: couldn't parse image name: %s", ref, err)
		w.warn("InspectFailed", msg)
		return nil, ofImage(ref, plan.ReasonInvalidImageName, errors.New(msg))
	}
	hold, err := w.Keeper.Hold(ctx, ref)
	if err != nil {
		return nil, err
	}
	w.holds = append(w.holds, hold)
	for {
		image, err := w.present(ctx, ref, policy)
		if err != nil || hold.Is(ctx, ids.ImageID(image.Id)) {
			return image, err
		}
	}
}

func (w *imageWork) present(ctx context.Context, ref string, policy v1.PullPolicy) (*criv1.Image, error) {
	// The API server has set the policy, unless it serves no defaults.
	if policy != v1.PullAlways {
		var image *criv1.Image
		err := w.Tell.step(ctx, w.pod, podstarts.InspectImage, w.container.Name, func() (err error) {
			image, err = w.imageStatus(ctx, ref)
			return err
		})
		if err != nil {
			w.warn("InspectFailed", fmt.Sprintf("Failed to inspect image %q: %s", ref, err))
			return nil, ofImage(ref, plan.ReasonImageInspect, err)
		}
		if image != nil {
			w.tell("Pulled", fmt.Sprintf("Container image %q already present on machine", ref))
			return image, nil
		}
	}
	if policy == v1.PullNever {
		msg := fmt.Sprintf("Container image %q is not present with pull policy of Never", ref)
		w.warn(plan.ReasonErrImageNeverPull, msg)
		return nil, ofImage(ref, plan.ReasonErrImageNeverPull, errors.New(msg))
	}
	return w.pull(ctx, ref)
}

// imageStatus is nil for an image that the runtime does not have.
func (i *Images) imageStatus(ctx context.Context, ref string) (*criv1.Image, error) {
	ctx, cancel := context.WithTimeout(ctx, cri.QueryTimeout)
	defer cancel()
	resp, err := i.Runtime.ImageStatus(ctx, &criv1.ImageStatusRequest{Image: &criv1.ImageSpec{Image: ref}})
	if status.Code(err) == codes.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("image %q: %s", ref, text(err))
	}
	return resp.Image, nil
}

// pull pulls an image, with each credential that fits in turn.
func (w *imageWork) pull(ctx context.Context, ref string) (*criv1.Image, error) {
	w.tell("Pulling", fmt.Sprintf("Pulling image %q", ref))
	creds, missing := w.credentials(ctx, ref)
	if len(creds) == 0 {
		creds = []*criv1.AuthConfig{nil}
	}
	begun := time.Now()
	var errs []string
	reason := plan.ReasonErrImagePull
	for _, auth := range creds {
		// No limit but the pod's life: how long a pull may take is the runtime's to judge.
		var resp *criv1.PullImageResponse
		err := w.Tell.step(ctx, w.pod, podstarts.CallPullImage, w.container.Name, func() (err error) {
			resp, err = w.Runtime.PullImage(ctx, &criv1.PullImageRequest{
				Image: &criv1.ImageSpec{Image: ref, UserSpecifiedImage: ref, Annotations: w.pod.Annotations}, Auth: auth, SandboxConfig: w.sandbox,
			})
			return err
		})
		if err != nil {
			reason = pullReason(text(err))
			errs = append(errs, text(err))
			continue
		}
		image, err := w.imageStatus(ctx, resp.ImageRef)
		if err == nil && image == nil {
			err = fmt.Errorf("image %q was pulled as %q and then not found", ref, resp.ImageRef)
		}
		if err != nil {
			return nil, ofImage(ref, plan.ReasonImageInspect, err)
		}
		took := time.Since(begun).Round(time.Millisecond)
		w.tell("Pulled", fmt.Sprintf("Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes.", ref, took, took, image.Size))
		return image, nil
	}
	// What could not be read may be what was missing.
	msg := fmt.Sprintf("failed to pull image %q: %s", ref, strings.Join(append(errs, missing...), "; "))
	if ctx.Err() == nil {
		w.warn("Failed", "F"+msg[1:])
	}
	return nil, ofImage(ref, reason, errors.New(msg))
}

// pullReason is the waiting reason of a failed pull. Runtimes tell two causes by how their message begins (k8s.io/cri-api,
// pkg/errors).
func pullReason(message string) string {
	for _, known := range []error{crierrors.ErrRegistryUnavailable, crierrors.ErrSignatureValidationFailed} {
		if strings.HasPrefix(message, known.Error()) {
			return known.Error()
		}
	}
	return plan.ReasonErrImagePull
}

func (w *imageWork) tell(reason, message string) {
	if w.quiet {
		return
	}
	w.Tell.Event(w.pod, w.container.Name, v1.EventTypeNormal, reason, message)
}

func (w *imageWork) warn(reason, message string) {
	w.Tell.Event(w.pod, w.container.Name, v1.EventTypeWarning, reason, message)
}

// ofImage is the failure to have an image; the status shows the reason.
func ofImage(ref, reason string, err error) error {
	return &Failed{Reason: reason, Image: ref, Err: err}
}
