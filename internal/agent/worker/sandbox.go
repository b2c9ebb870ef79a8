package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podspec"
)

func (w *Worker) sandboxConfig(pod *v1.Pod, attempt uint32) *criv1.PodSandboxConfig {
	var dns podspec.DNS
	// A host without a resolver configuration has none to hand on.
	if content, err := os.ReadFile(w.cfg.ResolvConf); err == nil {
		dns = podspec.ParseResolvConf(string(content))
	}
	return podspec.Sandbox(podspec.SandboxInput{
		Pod: pod, Attempt: attempt,
		CgroupParent: podspec.CgroupParent(w.cfg.CgroupRoot, pod, w.cfg.Runtime.Identity().Systemd),
		LogDir:       w.logDir(pod), NodeName: w.cfg.NodeName, HostDNS: dns,
	})
}

func (w *Worker) logDir(pod *v1.Pod) string {
	return filepath.Join(w.cfg.LogsDir, podspec.LogDir(podspec.Ref{UID: w.uid, Namespace: pod.Namespace, Name: pod.Name}))
}

func (w *Worker) createSandbox(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	if err := w.cfg.Volumes.Setup(ctx, pod); err != nil {
		w.event(pod, "", v1.EventTypeWarning, plan.ReasonFailedVolumes, err.Error())
		return because(plan.ReasonFailedVolumes, err)
	}
	if err := os.MkdirAll(w.logDir(pod), 0o755); err != nil {
		return because(plan.ReasonFailedSandbox, err)
	}
	for _, id := range a.Replaces {
		if err := w.stopSandbox(ctx, id); err != nil {
			return because(plan.ReasonFailedSandbox, err)
		}
	}
	if len(a.Replaces) > 0 {
		w.event(pod, "", v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	ctx, cancel := context.WithTimeout(ctx, cri.ChangeTimeout)
	defer cancel()
	handler, err := w.runtimeHandler(ctx, pod)
	if err == nil {
		_, err = w.cfg.Runtime.RunPodSandbox(ctx, &criv1.RunPodSandboxRequest{Config: w.sandboxConfig(pod, a.Attempt), RuntimeHandler: handler})
	}
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) {
			w.event(pod, "", v1.EventTypeWarning, plan.ReasonFailedSandbox, "Failed to create pod sandbox: "+text(err))
		}
		return because(plan.ReasonFailedSandbox, fmt.Errorf("run sandbox: %s", text(err)))
	}
	return nil
}

// runtimeHandler is the runtime's handler that the pod's runtime class names; empty: the default one. The class is asked for each time: its handler never
// changes, but another class may have come by the name.
func (w *Worker) runtimeHandler(ctx context.Context, pod *v1.Pod) (string, error) {
	name := pod.Spec.RuntimeClassName
	if name == nil || *name == "" {
		return "", nil
	}
	class, err := w.cfg.Kube.NodeV1().RuntimeClasses().Get(ctx, *name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("RuntimeClass %q: %w", *name, err)
	}
	return class.Handler, nil
}

func (w *Worker) updateVolumes(ctx context.Context, pod *v1.Pod) error {
	err := w.cfg.Volumes.Update(ctx, pod)
	if err != nil && ctx.Err() == nil {
		w.event(pod, "", v1.EventTypeWarning, plan.ReasonFailedVolumes, err.Error())
	}
	return because(plan.ReasonFailedVolumes, err)
}

// text is a CRI error without gRPC's wrapping.
func text(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}

func gone(err error) bool { return status.Code(err) == codes.NotFound }

func (w *Worker) stopSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, cri.ChangeTimeout)
	defer cancel()
	_, err := w.cfg.Runtime.StopPodSandbox(ctx, &criv1.StopPodSandboxRequest{PodSandboxId: id})
	if err != nil && !gone(err) {
		return fmt.Errorf("stop sandbox %s: %s", id, text(err))
	}
	return nil
}

func (w *Worker) removeSandbox(ctx context.Context, id string) error {
	if err := w.stopSandbox(ctx, id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cri.ChangeTimeout)
	defer cancel()
	_, err := w.cfg.Runtime.RemovePodSandbox(ctx, &criv1.RemovePodSandboxRequest{PodSandboxId: id})
	if err != nil && !gone(err) {
		return fmt.Errorf("remove sandbox %s: %s", id, text(err))
	}
	return nil
}

// release gives back what the pod holds; final: also what was kept for its logs.
func (w *Worker) release(ctx context.Context, pod *v1.Pod, final bool) error {
	w.cfg.Objects.Release(w.uid)
	w.cfg.Ports.Release(w.podUID())
	var errs []error
	if w.cfg.Devices != nil {
		errs = append(errs, w.cfg.Devices.Release(ctx, w.uid))
	}
	if final {
		// The logs go first: by the pod's directory the next start knows of a pod that is gone, if we end in between.
		if err := os.RemoveAll(w.logDir(pod)); err != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, w.cfg.Volumes.Remove(w.uid))
	} else {
		errs = append(errs, w.cfg.Volumes.Release(w.uid))
	}
	return errors.Join(errs...)
}

// deleteObject ends the object, after its last status was written.
func (w *Worker) deleteObject(ctx context.Context, pod *v1.Pod) error {
	if err := w.cfg.Status.Flush(ctx, pod.UID); err != nil {
		return err
	}
	zero := int64(0)
	err := w.cfg.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		// Gone already, or another pod has its name.
		return nil
	}
	return err
}
