package act

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/kit/podstarts"
	"monopod.dev/monopod/internal/pods"
)

// Sandboxes makes the sandboxes of pods, stops and removes them.
type Sandboxes struct {
	Node     *Node
	Places   *Places
	Handlers *RuntimeHandlers
	Runtime  SandboxRuntime
	// Listener says in words which process of the host listens at a port of it, "" where none does; nil: nobody knows.
	Listener func(protocol v1.Protocol, port int32) string
	Tell     *Tell
}

// SandboxRuntime is CRI, as far as it is about sandboxes.
type SandboxRuntime interface {
	RunPodSandbox(ctx context.Context, in *criv1.RunPodSandboxRequest, opts ...grpc.CallOption) (*criv1.RunPodSandboxResponse, error)
	StopPodSandbox(ctx context.Context, in *criv1.StopPodSandboxRequest, opts ...grpc.CallOption) (*criv1.StopPodSandboxResponse, error)
	RemovePodSandbox(ctx context.Context, in *criv1.RemovePodSandboxRequest, opts ...grpc.CallOption) (*criv1.RemovePodSandboxResponse, error)
}

func (s *Sandboxes) create(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	for _, id := range a.Replaces {
		if err := s.end(ctx, id); err != nil {
			return because(plan.ReasonFailedSandbox, err)
		}
	}
	if len(a.Replaces) > 0 {
		s.Tell.Event(pod, "", v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	if err := s.Places.make(pod); err != nil {
		return because(plan.ReasonFailedSandbox, err)
	}
	ctx, cancel := context.WithTimeout(ctx, cri.ChangeTimeout)
	defer cancel()
	in := s.Node.sandbox(pod, a.Attempt)
	if err := s.run(ctx, &in); err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) {
			s.Tell.Event(pod, "", v1.EventTypeWarning, plan.ReasonFailedSandbox, "Failed to create pod sandbox: "+text(err))
		}
		return because(plan.ReasonFailedSandbox, fmt.Errorf("run sandbox: %s", text(err)))
	}
	s.notice(pod, podspec.Notices(in))
	s.noticeListeners(pod)
	return nil
}

// run has the runtime make a sandbox.
func (s *Sandboxes) run(ctx context.Context, in *podspec.SandboxInput) error {
	if err := podspec.Check(*in); err != nil {
		return err
	}
	handler, err := s.Handlers.of(ctx, in.Pod)
	if err != nil {
		return err
	}
	if in.IDs, err = s.Handlers.idsBy(ctx, in.Pod, handler); err != nil {
		return err
	}
	return s.Tell.step(ctx, in.Pod, podstarts.CallRunSandbox, "", func() error {
		_, err := s.Runtime.RunPodSandbox(ctx, &criv1.RunPodSandboxRequest{Config: podspec.Sandbox(*in), RuntimeHandler: handler})
		return err
	})
}

// noticeListeners tells whose connections the pod gets from now on: the runtime looks at nobody who listens at its host ports.
func (s *Sandboxes) noticeListeners(pod *v1.Pod) {
	if s.Listener == nil || pod.Spec.HostNetwork {
		return
	}
	for _, port := range pods.HostPorts(&pod.Spec) {
		if who := s.Listener(port.Protocol, port.Port); who != "" {
			s.Tell.Event(pod, "", v1.EventTypeWarning, "HostPortInUse", fmt.Sprintf("%s listens at the host port %d/%s: who connects to it reaches this pod from now on", who, port.Port, port.Protocol))
		}
	}
}

// notice tells what the pod's resolver configuration lacks. What is so for all pods of the node is told of the node, which costs one event.
func (s *Sandboxes) notice(pod *v1.Pod, notices []podspec.Notice) {
	for _, n := range notices {
		if n.Node == "" {
			s.Tell.Event(pod, "", v1.EventTypeWarning, n.Reason, n.Message)
		} else {
			s.Node.Notice(n.Reason, n.Node)
		}
	}
}

func (s *Sandboxes) stop(ctx context.Context, _ *v1.Pod, a plan.Action) error {
	return s.end(ctx, a.SandboxID)
}

func (s *Sandboxes) end(ctx context.Context, id ids.SandboxID) error {
	ctx, cancel := context.WithTimeout(ctx, cri.ChangeTimeout)
	defer cancel()
	_, err := s.Runtime.StopPodSandbox(ctx, &criv1.StopPodSandboxRequest{PodSandboxId: string(id)})
	if err != nil && !gone(err) {
		return fmt.Errorf("stop sandbox %s: %s", id, text(err))
	}
	return nil
}

func (s *Sandboxes) remove(ctx context.Context, _ *v1.Pod, a plan.Action) error {
	if err := s.end(ctx, a.SandboxID); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cri.ChangeTimeout)
	defer cancel()
	_, err := s.Runtime.RemovePodSandbox(ctx, &criv1.RemovePodSandboxRequest{PodSandboxId: string(a.SandboxID)})
	if err != nil && !gone(err) {
		return fmt.Errorf("remove sandbox %s: %s", a.SandboxID, text(err))
	}
	return nil
}

// text is a CRI error without gRPC's wrapping.
func text(err error) string {
	if s, ok := status.FromError(err); ok {
		return strings.TrimSuffix(s.Message(), ": unavailable") // a class of errors, after the sentence that says it
	}
	return err.Error()
}

func gone(err error) bool { return status.Code(err) == codes.NotFound }
