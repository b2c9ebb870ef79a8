package podstats

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod.dev/monopod/internal/host/cgroup"
)

// Runtime is what is asked of the container runtime. What it does not implement (containerd before 2 has no metrics) is done without.
type Runtime interface {
	ListPodSandbox(context.Context, *criv1.ListPodSandboxRequest, ...grpc.CallOption) (*criv1.ListPodSandboxResponse, error)
	ListContainers(context.Context, *criv1.ListContainersRequest, ...grpc.CallOption) (*criv1.ListContainersResponse, error)
	ListPodSandboxStats(context.Context, *criv1.ListPodSandboxStatsRequest, ...grpc.CallOption) (*criv1.ListPodSandboxStatsResponse, error)
	ListContainerStats(context.Context, *criv1.ListContainerStatsRequest, ...grpc.CallOption) (*criv1.ListContainerStatsResponse, error)
	ListMetricDescriptors(context.Context, *criv1.ListMetricDescriptorsRequest, ...grpc.CallOption) (*criv1.ListMetricDescriptorsResponse, error)
	ListPodSandboxMetrics(context.Context, *criv1.ListPodSandboxMetricsRequest, ...grpc.CallOption) (*criv1.ListPodSandboxMetricsResponse, error)
}

// Images tells of the file systems of images and of containers' writable layers.
type Images interface {
	ImageFsInfo(context.Context, *criv1.ImageFsInfoRequest, ...grpc.CallOption) (*criv1.ImageFsInfoResponse, error)
}

// Config says what is collected, and from where.
type Config struct {
	NodeName string
	Runtime  Runtime
	Images   Images
	// PodsDir is the directory of pods' files (package volumes), LogsDir that of their logs.
	PodsDir, LogsDir string
	// DiskDir is a directory on the file system that is the node's ephemeral storage.
	DiskDir string
	// PodsCgroup is the cgroup below which all pods' are, in cgroupfs syntax. One that is not there is not told of; nil: nor is any.
	PodsCgroup func() (string, error)
	Log        *slog.Logger
}

// How long one collection may take, and how old one may be that is handed out. The images' file system changes slowly and costs the runtime most.
const (
	patience    = 10 * time.Second
	fresh       = time.Second
	freshImages = 10 * time.Second
)

// Collector collects. Its methods are safe for concurrent use.
type Collector struct {
	cfg     Config
	began   time.Time
	cgroups *cgroup.Host // nil: they cannot be read
	storage *storage

	snapshots *shared[*Snapshot]
	metrics   *shared[*Metrics]
	imageFS   *shared[*stats.RuntimeStats]

	mu          sync.Mutex // guards what follows
	rates       rates
	descriptors []*criv1.MetricDescriptor
	told        map[string]bool // what the log has already
}

// New makes a collector; nothing is asked before somebody does. What is under way when ctx ends is given up.
func New(ctx context.Context, cfg Config) *Collector {
	c := &Collector{cfg: cfg, began: time.Now(), told: map[string]bool{}}
	var err error
	if c.cgroups, err = cgroup.Detect(); err != nil {
		cfg.Log.Warn("the cgroup of all pods cannot be read", "error", err)
	}
	c.storage = newStorage(cfg.PodsDir, cfg.LogsDir, cfg.Log)
	c.snapshots = &shared[*Snapshot]{base: ctx, fresh: fresh, patience: patience, make: c.snapshot}
	c.metrics = &shared[*Metrics]{base: ctx, fresh: fresh, patience: patience, make: c.criMetrics}
	c.imageFS = &shared[*stats.RuntimeStats]{base: ctx, fresh: freshImages, patience: patience, make: c.runtimeStats}
	return c
}

// Run measures volumes and logs when somebody has asked, until ctx ends.
func (c *Collector) Run(ctx context.Context) { c.storage.run(ctx) }

// Snapshot is what was in use at one moment. It is shared: nobody changes it.
type Snapshot struct {
	At time.Time
	// Node and Pods have processors, memory and networks. Volumes, logs and file systems are added by Summary.
	Node stats.NodeStats
	Pods []stats.PodStats
	// MemoryTotal is the machine's, in bytes.
	MemoryTotal uint64
	// Sandboxes is how many are ready, Containers how many there are by state, in lower case: running, exited, created, unknown.
	Sandboxes  int
	Containers map[string]int
	// IDs are those that the runtime has given to what Pods tells of.
	IDs map[Key]ID
}

// Key names a container of a pod; without Container, the pod's sandbox.
type Key struct {
	UID       types.UID
	Container string
}

// ID is a container's or sandbox's, and its image as the user named it.
type ID struct{ ID, Image string }

// Snapshot returns one that is at most a second old.
func (c *Collector) Snapshot(ctx context.Context) (*Snapshot, error) { return c.snapshots.get(ctx) }

// Metrics are the runtime's own of its containers.
type Metrics struct {
	Descriptors []*criv1.MetricDescriptor
	Pods        []*criv1.PodSandboxMetrics
}

// Metrics returns the runtime's metrics, at most a second old. A runtime that has none is Unimplemented, as gRPC has it.
func (c *Collector) Metrics(ctx context.Context) (*Metrics, error) { return c.metrics.get(ctx) }

func (c *Collector) criMetrics(ctx context.Context) (*Metrics, error) {
	all, err := c.cfg.Runtime.ListPodSandboxMetrics(ctx, &criv1.ListPodSandboxMetricsRequest{})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	known := c.descriptors
	c.mu.Unlock()
	if !describes(known, all.PodMetrics) { // the first time, and when the runtime was upgraded
		d, err := c.cfg.Runtime.ListMetricDescriptors(ctx, &criv1.ListMetricDescriptorsRequest{})
		if err != nil {
			return nil, err
		}
		known = d.Descriptors
		c.mu.Lock()
		c.descriptors = known
		c.mu.Unlock()
	}
	return &Metrics{Descriptors: known, Pods: all.PodMetrics}, nil
}

// describes says whether there is a descriptor of as many labels for each metric of the containers.
func describes(known []*criv1.MetricDescriptor, pods []*criv1.PodSandboxMetrics) bool {
	if len(known) == 0 {
		return false
	}
	labels := map[string]int{}
	for _, d := range known {
		labels[d.Name] = len(d.LabelKeys)
	}
	for _, p := range pods {
		for _, ct := range p.ContainerMetrics {
			for _, m := range ct.Metrics {
				if n, ok := labels[m.Name]; !ok || n != len(m.LabelValues) {
					return false
				}
			}
		}
	}
	return true
}

// once logs what would otherwise be said at each scrape.
func (c *Collector) once(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.told[what] {
		c.told[what] = true
		c.cfg.Log.Warn("the node's statistics are not complete", "what", what, "error", err)
	}
}
