// Package stats tells what sandboxes and containers use, as CRI's stats and metrics have it.
//
// Cgroups are read when somebody asks, a handful of small files a container; nothing is read while nobody asks. Only the size of
// a container's writable layer, which takes a walk over its files, is measured in the background, and what is told is the last
// measurement with its time.
//
// A container or a sandbox that goes while it is read is left out, and is no error. Every method is safe for concurrent use.
package stats

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
)

// Network tells the counters of sandboxes' interfaces.
type Network interface {
	// InterfaceStats takes the network namespaces of sandboxes by the sandboxes' ids; one that is gone is left out.
	InterfaceStats(ctx context.Context, sandboxes map[ids.SandboxID]string) (map[ids.SandboxID][]network.InterfaceStat, error)
}

// Config is what a Collector works with.
type Config struct {
	Cgroups *cgroup.Host
	// Network may be nil: then there is nothing to tell of networks.
	Network Network
	// LayerDir is a directory on the file system that holds the writable layers.
	LayerDir string
	Log      *slog.Logger
}

// Collector collects.
type Collector struct {
	cfg    Config
	rates  rates
	layers layers

	forgotten atomic.Int64 // calls of Forget since the last sweep
}

// New returns a Collector. Writable layers are measured while Run runs.
func New(cfg Config) *Collector {
	return &Collector{cfg: cfg, layers: layers{log: cfg.Log, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1)}}
}

// Container is a container to tell about.
type Container struct {
	Attributes *cri.ContainerAttributes
	// Cgroup is empty for a container that does not run: then only its writable layer is told.
	Cgroup string
	// Layer is the directory of what the container has written.
	Layer     string
	StartedAt time.Time
	Image     string
	// PID is that of the container's first process; 0: unknown.
	PID int
}

// Sandbox is a sandbox to tell about, with its running containers.
type Sandbox struct {
	Attributes *cri.PodSandboxAttributes
	// Cgroup is empty for a sandbox that is not ready. Shared says that the cgroup holds other pods too.
	Cgroup string
	Shared bool
	// NetNS is the path of the network namespace; empty: the host's.
	NetNS      string
	Containers []Container
}

// Measure measures a container's writable layer soon, whether or not somebody asks.
func (c *Collector) Measure(id, dir string) { c.layers.want(id, dir) }

// Forget forgets a container or sandbox that is gone.
func (c *Collector) Forget(id string) {
	c.rates.forget(id)
	c.layers.forget(id)
	c.forgotten.Add(1)
}

// Sweep does what Keep does, once for as many calls of Forget as there is something known of: so what a removal costs does not grow with
// what there is.
func (c *Collector) Sweep(live func(id string) bool) {
	if c.forgotten.Load() < int64(c.rates.count()+c.layers.count()) {
		return
	}
	c.forgotten.Store(0)
	c.Keep(live)
}

// Keep forgets all containers and sandboxes that live does not know: those too that somebody has asked for while they went.
// live must not call back.
func (c *Collector) Keep(live func(id string) bool) {
	c.rates.keep(live)
	c.layers.keep(live)
}

// Run measures writable layers until ctx ends.
func (c *Collector) Run(ctx context.Context) error { return c.layers.run(ctx) }

// Container tells what a container uses; nil when it is gone.
func (c *Collector) Container(ct Container) *cri.ContainerStats {
	out := &cri.ContainerStats{Attributes: ct.Attributes, WritableLayer: c.writableLayer(&ct)}
	if ct.Cgroup == "" {
		return out
	}
	s, ok := c.read(ct.Cgroup, cgroup.Basic)
	if !ok {
		return nil
	}
	out.Cpu, out.Memory, out.Swap, out.Io = c.cpuUsage(ct.Attributes.GetId(), &s), memoryUsage(&s), swapUsage(&s), ioUsage(&s)
	return out
}

// read reads a cgroup that may have gone.
func (c *Collector) read(path string, detail cgroup.Detail) (cgroup.Stats, bool) {
	s, err := c.cfg.Cgroups.Stats(path, detail)
	if err != nil && !errdefs.IsNotFound(err) {
		c.cfg.Log.Warn("stats are left out of a list", "cgroup", path, "error", err)
	}
	return s, err == nil
}

func (c *Collector) cpuUsage(id string, s *cgroup.Stats) *cri.CpuUsage {
	if s.CPU == nil {
		return nil
	}
	u := &cri.CpuUsage{Timestamp: s.CPU.At.UnixNano(), UsageCoreNanoSeconds: number(s.CPU.Usage), Psi: psi(s.CPUPressure)}
	if rate, ok := c.rates.add(id, sample{at: s.CPU.At, usage: s.CPU.Usage}); ok {
		u.UsageNanoCores = number(rate)
	}
	return u
}

func (c *Collector) writableLayer(ct *Container) *cri.FilesystemUsage {
	usage, ok := c.layers.usage(ct.Attributes.GetId(), ct.Layer)
	if !ok {
		return nil
	}
	return &cri.FilesystemUsage{Timestamp: usage.at.UnixNano(), FsId: &cri.FilesystemIdentifier{Mountpoint: c.cfg.LayerDir},
		UsedBytes: number(usage.bytes), InodesUsed: number(usage.inodes)}
}

// networkPatience bounds how long a list waits for the network's counters.
const networkPatience = 2 * time.Second

// Interfaces reads the interfaces of all sandboxes at once. Without an answer there is nothing to tell, and the rest is told.
func (c *Collector) Interfaces(ctx context.Context, all []Sandbox) (stats map[ids.SandboxID][]network.InterfaceStat, at time.Time) {
	at = time.Now()
	namespaces := map[ids.SandboxID]string{}
	for _, sb := range all {
		if sb.NetNS != "" {
			namespaces[ids.SandboxID(sb.Attributes.GetId())] = sb.NetNS
		}
	}
	if c.cfg.Network == nil || len(namespaces) == 0 {
		return nil, at
	}
	ctx, cancel := context.WithTimeout(ctx, networkPatience)
	defer cancel()
	stats, err := c.cfg.Network.InterfaceStats(ctx, namespaces)
	if err != nil {
		c.cfg.Log.Warn("the network's counters are left out of a list", "error", err)
	}
	return stats, at
}

// Sandbox tells what a sandbox uses, with what Interfaces has told of it; nil when it is gone.
func (c *Collector) Sandbox(sb Sandbox, interfaces []network.InterfaceStat, at time.Time) *cri.PodSandboxStats {
	out := &cri.PodSandboxStats{Attributes: sb.Attributes, Linux: &cri.LinuxPodSandboxStats{}}
	if sb.Cgroup == "" {
		return out
	}
	l := out.Linux
	processes := time.Now()
	count := uint64(0)
	for _, ct := range sb.Containers {
		if st := c.Container(ct); st != nil {
			l.Containers = append(l.Containers, st)
			if sb.Shared {
				sum(l, st)
				count += c.processes(ct.Cgroup)
			}
		}
	}
	if !sb.Shared {
		s, ok := c.read(sb.Cgroup, cgroup.Basic)
		if !ok {
			return nil
		}
		l.Cpu, l.Memory, l.Io = c.cpuUsage(sb.Attributes.GetId(), &s), memoryUsage(&s), ioUsage(&s)
		count = c.processes(sb.Cgroup)
	}
	l.Process = &cri.ProcessUsage{Timestamp: processes.UnixNano(), ProcessCount: number(count)}
	if len(interfaces) > 0 {
		l.Network = networkUsage(at, interfaces)
	}
	return out
}

// processes counts; a cgroup that is gone has none.
func (c *Collector) processes(path string) uint64 {
	n, err := c.cfg.Cgroups.CountProcesses(path)
	if err != nil {
		c.cfg.Log.Warn("processes cannot be counted", "cgroup", path, "error", err)
	}
	return n
}
