package agent

import (
	"context"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/agent/admit"
	"monopod.dev/monopod/internal/agent/nodestatus"
	"monopod.dev/monopod/internal/agent/podcgroup"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/cgroup/place"
	"monopod.dev/monopod/internal/kit/wait"
)

// Resources says what of the machine pods may have, and how that is held.
type Resources struct {
	// Reserved is what of the machine pods may not have.
	Reserved v1.ResourceList
	// Enforce: all pods together are limited to the memory that they may have.
	Enforce bool
	// LimitedSwap: burstable pods may use swap, on cgroup v2.
	LimitedSwap bool
	// Throttling is where between its memory request and its limit a container is slowed down, on cgroup v2: more than 0, at most 1; 0: it is not.
	Throttling float64
	// Tiered: the kernel leaves containers the memory that they request, on cgroup v2.
	Tiered bool
	// SingleProcessOOMKill: out of memory one process of a container is killed, not all. Cgroup v1 knows nothing else.
	SingleProcessOOMKill bool
}

// nodeResources is what pods are admitted by, and what their resources come from.
type nodeResources struct {
	ledger  *admit.Ledger
	cgroups *podcgroup.Manager
	limits  func() podspec.NodeLimits
}

// resourceWorld is what nodeResources is made of.
type resourceWorld struct {
	host *cgroup.Host
	node *nodestatus.Reporter
	// pods are the node's pods as the API server has them, and synced says that all are known.
	pods   func() []*v1.Pod
	synced func() bool
	// cgroupDriver is the runtime's.
	cgroupDriver func() place.Driver
}

// newNodeResources changes nothing on the host.
func (a *Agent) newNodeResources(ctx context.Context, w resourceWorld) *nodeResources {
	r := &nodeResources{limits: nodeLimits(a.cfg.Resources, w.host, w.node)}
	r.ledger = admit.NewLedger(admit.Config{
		Node: w.node.Node, Fresh: func() (*v1.Node, error) { return w.node.Fresh(ctx) }, Known: w.pods, Synced: w.synced, OwnPorts: a.cfg.OwnPorts,
	})
	r.cgroups = podcgroup.New(podcgroup.Config{
		Host: w.host, Root: a.cfg.CgroupRoot, Driver: w.cgroupDriver, Node: r.limits, Allocatable: w.node.Allocatable, Sums: r.ledger.QOS, Log: a.log,
	})
	return r
}

// nodeLimits reads what does not change while the agent runs once.
func nodeLimits(cfg Resources, host *cgroup.Host, node *nodestatus.Reporter) func() podspec.NodeLimits {
	v2 := host.Mode() == cgroup.V2
	l := podspec.NodeLimits{
		Memory: node.Memory(), Swap: node.Swap(), PageSize: int64(os.Getpagesize()), CgroupV2: v2, SwapLimit: host.HasSwapLimit(),
		LimitedSwap: v2 && cfg.LimitedSwap, Throttling: cfg.Throttling, Tiered: v2 && cfg.Tiered, KillAll: v2 && !cfg.SingleProcessOOMKill,
	}
	// Where the controller is that of a v2 hierarchy beside those of v1, it costs each cgroup that has it, and no other runtime knows it.
	if !host.SplitHugetlb() {
		l.HugepageSizes = host.HugepageSizes()
	}
	return func() podspec.NodeLimits {
		l := l
		allocatable := node.Allocatable()
		l.AllocatableMemory = allocatable.Memory().Value()
		return l
	}
}

// enforceAgain is when the limit of all pods is tried to be set again: until then some of them may have ended.
const enforceAgain = time.Minute

// enforce limits all pods together to the memory that they may have, and tells of it as a kubelet does. It tries until it has succeeded, or ctx ends.
func (r *nodeResources) enforce(ctx context.Context, events record.EventRecorder, ref *v1.ObjectReference) {
	for {
		err := r.cgroups.Enforce()
		if err == nil {
			events.Event(ref, v1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
			return
		}
		events.Event(ref, v1.EventTypeWarning, "FailedNodeAllocatableEnforcement", "Failed to update Node Allocatable Limits: "+err.Error())
		if wait.For(ctx, enforceAgain) != nil {
			return
		}
	}
}
