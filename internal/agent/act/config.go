package act

import (
	"context"
	"log/slog"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/agent/admit"
	"monopod.dev/monopod/internal/agent/cdiprobe"
	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/imagekeep"
	"monopod.dev/monopod/internal/agent/loglinks"
	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/agent/pullauth"
	"monopod.dev/monopod/internal/agent/services"
	"monopod.dev/monopod/internal/agent/tokens"
	"monopod.dev/monopod/internal/agent/volumes"
	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/kit/podstarts"
)

// Devices grants devices to containers.
type Devices interface {
	// Admit gives a pod that asks for devices all of them, or says whether it waits or fails. It is idempotent.
	Admit(ctx context.Context, pod *v1.Pod) (devices.Verdict, error)
	// Grant returns what a container of an admitted pod is started with, when that is on record. Any error means that it cannot be now.
	Grant(ctx context.Context, pod *v1.Pod, container string) (devices.Grant, error)
	// GrantsOf tells what the pod's containers have, and how it is; none: they have nothing.
	GrantsOf(podUID string) []devices.GrantRecord
	// Release gives back what the pod has. It is idempotent.
	Release(ctx context.Context, podUID string) error
}

// Ledger knows what the node's pods have of it.
type Ledger interface {
	// Take gives a pod what it asks for of the node, or says why not. It is idempotent. A pod that has begun to run has what it asks for.
	Take(pod *v1.Pod, begun bool) *admit.Refusal
	// Release gives back what a pod has. It is idempotent.
	Release(uid types.UID)
}

// Cgroups are those of pods and of their classes.
type Cgroups interface {
	// Ensure makes the pod's cgroup with its limits. It is idempotent.
	Ensure(pod *v1.Pod) error
	// Remove removes it, when nothing runs in it any more. It is idempotent.
	Remove(uid string) error
	// UpdateQoS gives the classes the shares of what their pods ask for.
	UpdateQoS() error
}

// Status takes the pods' statuses to whoever wants to know them.
type Status interface {
	// Set makes st the pod's status. pod is the newest version of the object that the caller knows. passing: what is new in st is soon over, so that it may
	// wait a moment for the next.
	Set(pod *v1.Pod, st v1.PodStatus, passing bool)
	// Flush returns when the last status that was set has been taken, or can't be because the pod is gone.
	Flush(ctx context.Context, uid types.UID) error
	// Forget drops the pod.
	Forget(uid types.UID)
}

// Config is what the actions of all pods share.
type Config struct {
	Runtime *cri.Client
	Kube    kubernetes.Interface
	Devices Devices
	// CDI knows whether the runtime honours CDI devices.
	CDI     *cdiprobe.Prober
	Ledger  Ledger
	Cgroups Cgroups
	Hooks   Hooks
	Volumes *volumes.Manager
	Objects *objects.Store
	Tokens  *tokens.Store
	Status  Status
	Events  record.EventRecorder
	Images  *imagekeep.Keeper
	// Providers are the node's credential provider plugins.
	Providers *pullauth.Providers
	// NodeName, HostIPs, Limits and Allocatable tell of the node.
	NodeName    string
	HostIPs     []string
	Limits      func() podspec.NodeLimits
	Allocatable func() v1.ResourceList
	// Services are what containers are told of by variables, LogLinks the links to their logs.
	Services *services.Services
	LogLinks *loglinks.Links
	// ClusterDNS and ClusterDomain are where the names of services are asked for, and their domain.
	ClusterDNS    []string
	ClusterDomain string
	// Listener says in words which process of the host listens at a port of it, "" where none does; nil: nobody knows.
	Listener func(protocol v1.Protocol, port int32) string
	// NodeNotice tells the node's owner of something once, as a warning.
	NodeNotice func(reason, message string)
	// CgroupRoot is the cgroup that the pods' cgroups are below, LogsDir the directory of all pods' logs.
	CgroupRoot, LogsDir string
	// ResolvConf is the host's resolver configuration that pods get, as it is; empty: that of the host's own programs, without what pods do not reach.
	ResolvConf string
	// Timeline remembers how pods' starts go; nil: nobody does.
	Timeline *podstarts.Recorder
	Log      *slog.Logger
}
