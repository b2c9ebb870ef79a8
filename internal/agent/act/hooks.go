package act

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/handlers"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/pods"
)

// Reasons of the events about hooks, a kubelet's.
const (
	reasonPostStartFailed = "FailedPostStartHook"
	reasonPreStopFailed   = "FailedPreStopHook"
)

// Hooks runs the lifecycle hooks of containers.
type Hooks struct {
	Node    *Node
	Handler HookHandler
	Tell    *Tell
}

// HookHandler carries out what a lifecycle hook names.
type HookHandler interface {
	Hook(ctx context.Context, on handlers.Subject, hook *v1.LifecycleHandler) handlers.Answer
}

// postStart runs the hook of a container that was just started. When it fails the plan has the container stopped.
func (h *Hooks) postStart(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	_, c := pods.ContainerNamed(&pod.Spec, a.ContainerName)
	if c == nil || c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	if err := h.run(ctx, pod, c, a, c.Lifecycle.PostStart); err != nil {
		if ctx.Err() == nil {
			h.Tell.Event(pod, c.Name, v1.EventTypeWarning, reasonPostStartFailed, "PostStartHook failed")
		}
		return because(reasonPostStartFailed, fmt.Errorf("postStart hook of container %s: %w", c.Name, err))
	}
	return nil
}

// preStop runs the hook of a container that is to be stopped. Whatever comes of it, the stop follows.
func (h *Hooks) preStop(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	h.Tell.stop(pod, a)
	_, c := pods.ContainerNamed(&pod.Spec, a.ContainerName)
	if c == nil || c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
		return nil
	}
	ctx, cancel := context.WithDeadline(ctx, a.StopBy)
	defer cancel()
	if err := h.run(ctx, pod, c, a, c.Lifecycle.PreStop); err != nil {
		h.Tell.Event(pod, c.Name, v1.EventTypeWarning, reasonPreStopFailed, "PreStopHook failed")
	}
	return nil
}

func (h *Hooks) run(ctx context.Context, pod *v1.Pod, c *v1.Container, a plan.Action, hook *v1.LifecycleHandler) error {
	ip := ""
	if ips := h.Node.podIPs(pod, a.Sandbox); len(ips) > 0 {
		ip = ips[0]
	}
	answer := h.Handler.Hook(ctx, handlers.Subject{Pod: pod, Container: c, ID: a.ContainerID, IP: ip}, hook)
	switch answer.Result {
	case handlers.Success:
		return nil
	case handlers.Warning:
		h.Tell.Event(pod, c.Name, v1.EventTypeWarning, handlers.HookFallback, answer.Output)
		return nil
	}
	// What the container has answered may be long, or secret: it is not for an event that anybody reads.
	return errors.New(answer.Output)
}
