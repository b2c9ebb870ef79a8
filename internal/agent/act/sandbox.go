package act

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/host/cgroup/place"
	"monopod.dev/monopod/internal/kit/podstarts"
	"monopod.dev/monopod/internal/pods"
)

// HostResolvConf is the file by which the host's own programs resolve names. Where it sends them to systemd-resolved, that one's servers are in resolvedConf.
const (
	HostResolvConf = "/etc/resolv.conf"
	resolvedConf   = "/run/systemd/resolve/resolv.conf"
)

// hostDNS is the host's resolver configuration.
func (p *Pod) hostDNS() (dns podspec.HostDNS) {
	read := func(path string) (podspec.DNS, error) {
		content, err := os.ReadFile(path)
		return podspec.ParseResolvConf(string(content)), err
	}
	if chosen := p.cfg.ResolvConf; chosen != "" {
		var err error
		if dns.Own, err = read(chosen); err != nil {
			p.cfg.NodeNotice(podspec.ReasonDNSConfigForming, fmt.Sprintf("pods get no name servers of the host: agent.resolvConf: %v", err))
		}
		dns.Chosen = true
		return dns
	}
	// A host without a resolver configuration has none to hand on, and one without systemd-resolved has nothing behind it.
	dns.Own, _ = read(HostResolvConf)
	dns.Behind, _ = read(resolvedConf)
	return dns
}

func (p *Pod) sandboxInput(pod *v1.Pod, attempt uint32) podspec.SandboxInput {
	return podspec.SandboxInput{
		Pod: pod, Attempt: attempt,
		CgroupParent: place.Pods{Root: p.cfg.CgroupRoot, Driver: p.cfg.Runtime.Identity().CgroupDriver}.Pod(string(pod.UID), string(pods.QOS(pod))),
		LogDir:       p.logDir(pod), NodeName: p.cfg.NodeName, HostDNS: p.hostDNS(), ClusterDNS: p.cfg.ClusterDNS, ClusterDomain: p.cfg.ClusterDomain,
	}
}

func (p *Pod) logDir(pod *v1.Pod) string {
	return filepath.Join(p.cfg.LogsDir, podspec.LogDir(podspec.Ref{UID: p.uid, Namespace: pod.Namespace, Name: pod.Name}))
}

// makeDirs makes the pod's directory, and then the one of its logs: by the first one who comes later knows that there may be the second.
func (p *Pod) makeDirs(pod *v1.Pod) error {
	if err := p.cfg.Volumes.MakePodDir(p.uid); err != nil {
		return err
	}
	return os.MkdirAll(p.logDir(pod), 0o755)
}

func (p *Pod) createSandbox(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	for _, id := range a.Replaces {
		if err := p.stopSandbox(ctx, id); err != nil {
			return because(plan.ReasonFailedSandbox, err)
		}
	}
	if len(a.Replaces) > 0 {
		p.Event(pod, "", v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	if err := p.makeDirs(pod); err != nil {
		p.Event(pod, "", v1.EventTypeWarning, "FailedToMakePodDataDirectories", "error making pod data directories: "+err.Error())
		return because(plan.ReasonFailedSandbox, fmt.Errorf("directories of the pod: %w", err))
	}
	// The runtime would make it too, without limits, and after the classes' shares were needed.
	if err := errors.Join(p.cfg.Cgroups.UpdateQoS(), p.cfg.Cgroups.Ensure(pod)); err != nil {
		p.Event(pod, "", v1.EventTypeWarning, "FailedCreatePodContainer", "unable to ensure pod container exists: "+err.Error())
		return because(plan.ReasonFailedSandbox, fmt.Errorf("cgroup of the pod: %w", err))
	}
	ctx, cancel := context.WithTimeout(ctx, cri.ChangeTimeout)
	defer cancel()
	in := p.sandboxInput(pod, a.Attempt)
	err := podspec.Check(in)
	var handler string
	if err == nil {
		handler, err = p.runtimeHandler(ctx, pod)
	}
	if err == nil && !pods.HostUsers(&pod.Spec) {
		in.IDs, err = p.idsBy(ctx, pod, handler)
	}
	if err == nil {
		err = p.call(ctx, podstarts.CallRunSandbox, "", func() error {
			_, err := p.cfg.Runtime.RunPodSandbox(ctx, &criv1.RunPodSandboxRequest{Config: podspec.Sandbox(in), RuntimeHandler: handler})
			return err
		})
	}
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) {
			p.Event(pod, "", v1.EventTypeWarning, plan.ReasonFailedSandbox, "Failed to create pod sandbox: "+text(err))
		}
		return because(plan.ReasonFailedSandbox, fmt.Errorf("run sandbox: %s", text(err)))
	}
	p.notice(pod, podspec.Notices(in))
	p.noticeListeners(pod)
	return nil
}

// noticeListeners tells whose connections the pod gets from now on: the runtime looks at nobody who listens at its host ports.
func (p *Pod) noticeListeners(pod *v1.Pod) {
	if p.cfg.Listener == nil || pod.Spec.HostNetwork {
		return
	}
	for _, port := range pods.HostPorts(&pod.Spec) {
		if who := p.cfg.Listener(port.Protocol, port.Port); who != "" {
			p.Event(pod, "", v1.EventTypeWarning, "HostPortInUse", fmt.Sprintf("%s listens at the host port %d/%s: who connects to it reaches this pod from now on", who, port.Port, port.Protocol))
		}
	}
}

// notice tells what the pod's resolver configuration lacks. What is so for all pods of the node is told of the node, which costs one event.
func (p *Pod) notice(pod *v1.Pod, notices []podspec.Notice) {
	for _, n := range notices {
		if n.Node == "" {
			p.Event(pod, "", v1.EventTypeWarning, n.Reason, n.Message)
		} else {
			p.cfg.NodeNotice(n.Reason, n.Node)
		}
	}
}

// runtimeHandler is the runtime's handler that the pod's runtime class names; empty: the default one. The class is asked for each time: its handler never
// changes, but another class may have come by the name.
func (p *Pod) runtimeHandler(ctx context.Context, pod *v1.Pod) (string, error) {
	name := pod.Spec.RuntimeClassName
	if name == nil || *name == "" {
		return "", nil
	}
	class, err := p.cfg.Kube.NodeV1().RuntimeClasses().Get(ctx, *name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("RuntimeClass %q: %w", *name, err)
	}
	return class.Handler, nil
}

// text is a CRI error without gRPC's wrapping.
func text(err error) string {
	if s, ok := status.FromError(err); ok {
		return strings.TrimSuffix(s.Message(), ": unavailable") // a class of errors, after the sentence that says it
	}
	return err.Error()
}

func gone(err error) bool { return status.Code(err) == codes.NotFound }

func (p *Pod) stopSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, cri.ChangeTimeout)
	defer cancel()
	_, err := p.cfg.Runtime.StopPodSandbox(ctx, &criv1.StopPodSandboxRequest{PodSandboxId: id})
	if err != nil && !gone(err) {
		return fmt.Errorf("stop sandbox %s: %s", id, text(err))
	}
	return nil
}

func (p *Pod) removeSandbox(ctx context.Context, id string) error {
	if err := p.stopSandbox(ctx, id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cri.ChangeTimeout)
	defer cancel()
	_, err := p.cfg.Runtime.RemovePodSandbox(ctx, &criv1.RemovePodSandboxRequest{PodSandboxId: id})
	if err != nil && !gone(err) {
		return fmt.Errorf("remove sandbox %s: %s", id, text(err))
	}
	return nil
}
