package cri

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/kit/ids"
)

// View observes one pod. It remembers what cannot change: it must not be used by two goroutines at once.
type View struct {
	client *Client
	uid    types.UID
	// message reads the termination message of a container that has ended.
	message func(End) string
	ended   map[ids.ContainerID]plan.Container
	ips     map[ids.SandboxID][]string
}

// End is a container that has ended, as a termination message is looked up by.
type End struct {
	Facts    podspec.Facts
	ExitCode int32
	// LogPath is the absolute path of its log; empty: it has none.
	LogPath string
}

// View makes a view of the pod. message may be nil.
func (c *Client) View(uid types.UID, message func(End) string) *View {
	return &View{client: c, uid: uid, message: message, ended: map[ids.ContainerID]plan.Container{}, ips: map[ids.SandboxID][]string{}}
}

// Observe asks the runtime for all that it holds of the pod.
func (v *View) Observe(ctx context.Context) (plan.Observed, error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	sandboxes, err := v.client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{
		Filter: &cri.PodSandboxFilter{LabelSelector: podspec.Selector(v.uid)},
	})
	if err != nil {
		return plan.Observed{}, fmt.Errorf("list the sandboxes of pod %s: %w", v.uid, err)
	}
	var o plan.Observed
	for _, s := range sandboxes.Items {
		sandbox, err := v.sandbox(ctx, s)
		if err != nil {
			return plan.Observed{}, err
		}
		o.Sandboxes = append(o.Sandboxes, sandbox)
	}
	containers, err := v.client.ListContainers(ctx, &cri.ListContainersRequest{
		Filter: &cri.ContainerFilter{LabelSelector: podspec.Selector(v.uid)},
	})
	if err != nil {
		return plan.Observed{}, fmt.Errorf("list the containers of pod %s: %w", v.uid, err)
	}
	for _, c := range containers.Containers {
		container, err := v.container(ctx, c)
		if status.Code(err) == codes.NotFound {
			// Removed between the two calls.
			continue
		}
		if err != nil {
			return plan.Observed{}, err
		}
		o.Containers = append(o.Containers, container)
	}
	v.forget(&o)
	return o, nil
}

func (v *View) sandbox(ctx context.Context, s *cri.PodSandbox) (plan.Sandbox, error) {
	id := ids.SandboxID(s.Id)
	out := plan.Sandbox{
		ID: id, Attempt: s.GetMetadata().GetAttempt(), CreatedAt: nanos(s.CreatedAt),
		Ready: s.State == cri.PodSandboxState_SANDBOX_READY, IPs: v.ips[id],
	}
	if !out.Ready || out.IPs != nil {
		return out, nil
	}
	resp, err := v.client.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: s.Id})
	if status.Code(err) == codes.NotFound {
		out.Ready = false
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("status of sandbox %s of pod %s: %w", s.Id, v.uid, err)
	}
	out.Ready = resp.GetStatus().GetState() == cri.PodSandboxState_SANDBOX_READY
	if ip := resp.GetStatus().GetNetwork().GetIp(); ip != "" {
		out.IPs = append(out.IPs, ip)
		for _, more := range resp.Status.Network.AdditionalIps {
			out.IPs = append(out.IPs, more.Ip)
		}
		v.ips[id] = out.IPs
	}
	return out, nil
}

func (v *View) container(ctx context.Context, c *cri.Container) (plan.Container, error) {
	id := ids.ContainerID(c.Id)
	if known, ok := v.ended[id]; ok {
		return known, nil
	}
	facts := podspec.FactsOf(c.Labels, c.Annotations)
	out := plan.Container{
		ID: id, Name: facts.Name, SandboxID: ids.SandboxID(c.PodSandboxId), Attempt: facts.RestartCount, Step: facts.Step,
		Hash: facts.Hash, VolumeImages: facts.VolumeImages, CreatedAt: nanos(c.CreatedAt),
	}
	resp, err := v.client.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.Id})
	if err != nil {
		return out, err
	}
	st := resp.GetStatus()
	out.State = state(st.GetState())
	out.StartedAt, out.FinishedAt = nanos(st.GetStartedAt()), nanos(st.GetFinishedAt())
	out.ExitCode, out.Reason, out.Message = st.GetExitCode(), st.GetReason(), st.GetMessage()
	out.Image, out.ImageRef = st.GetImage().GetUserSpecifiedImage(), st.GetImageRef()
	if out.Image == "" {
		out.Image = st.GetImage().GetImage()
	}
	if out.ImageRef == "" {
		out.ImageRef = st.GetImageId()
	}
	out.User, out.StopSignal = user(st.GetUser().GetLinux()), stopSignal(st.GetStopSignal())
	for _, m := range st.GetMounts() {
		if m.RecursiveReadOnly {
			out.Recursive = append(out.Recursive, m.ContainerPath)
		}
	}
	if out.State != plan.Exited {
		return out, nil
	}
	if v.message != nil {
		if m := v.message(End{Facts: facts, ExitCode: out.ExitCode, LogPath: st.GetLogPath()}); m != "" {
			out.Message = m
		}
	}
	v.ended[id] = out
	return out, nil
}

func user(u *cri.LinuxContainerUser) *v1.ContainerUser {
	if u == nil {
		return nil
	}
	return &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: u.Uid, GID: u.Gid, SupplementalGroups: u.SupplementalGroups}}
}

// stopSignal writes a signal as the API does: CRI's SIGRTMINPLUS3 is SIGRTMIN+3 there.
func stopSignal(s cri.Signal) v1.Signal {
	if s == cri.Signal_SIGNAL_RUNTIME_DEFAULT {
		return ""
	}
	name := strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(s.String())
	return v1.Signal(strings.TrimPrefix(name, "SIGNAL_"))
}

// forget drops what is remembered of containers and sandboxes that are gone.
func (v *View) forget(o *plan.Observed) {
	sandboxes, containers := o.IDs()
	for id := range v.ended {
		if !containers[id] {
			delete(v.ended, id)
		}
	}
	for id := range v.ips {
		if !sandboxes[id] {
			delete(v.ips, id)
		}
	}
}

func state(s cri.ContainerState) plan.ContainerState {
	switch s {
	case cri.ContainerState_CONTAINER_CREATED:
		return plan.Created
	case cri.ContainerState_CONTAINER_RUNNING:
		return plan.Running
	case cri.ContainerState_CONTAINER_EXITED:
		return plan.Exited
	default:
		return plan.Unknown
	}
}

// nanos is CRI's time: nanoseconds since 1970, 0 for none.
func nanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

// Pods lists the pods that the runtime holds anything of, by UID.
func (c *Client) Pods(ctx context.Context) (map[types.UID]podspec.Ref, error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	found := map[types.UID]podspec.Ref{}
	sandboxes, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list all sandboxes: %w", err)
	}
	for _, s := range sandboxes.Items {
		if ref, ok := podspec.RefOf(s.Labels); ok {
			found[ref.UID] = ref
		}
	}
	containers, err := c.Containers(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range containers {
		found[o.Pod.UID] = o.Pod
	}
	return found, nil
}

// Container is a container that the runtime holds, of any pod.
type Container struct {
	ID          string
	Pod         podspec.Ref
	Name        string
	Running     bool
	Annotations map[string]string
}

// Containers lists the containers of all pods.
func (c *Client) Containers(ctx context.Context) ([]Container, error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	resp, err := c.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list all containers: %w", err)
	}
	var found []Container
	for _, o := range resp.Containers {
		if ref, ok := podspec.RefOf(o.Labels); ok {
			found = append(found, Container{o.Id, ref, podspec.FactsOf(o.Labels, o.Annotations).Name, o.State == cri.ContainerState_CONTAINER_RUNNING, o.Annotations})
		}
	}
	return found, nil
}
