package stats

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
)

// subject is what a metric is told of: a container, or a sandbox as a whole.
type subject struct {
	labels     []string // the values of baseKeys
	now        time.Time
	container  *Container // nil for a sandbox
	cgroup     cgroup.Stats
	layer      *layerUsage
	layers     *unix.Statfs_t // of the file system that holds the layers
	device     string         // its device
	processes  uint64
	open       *openFiles
	interfaces []network.InterfaceStat
	nameOf     func(major, minor uint64) string
}

// openFiles is what a container's processes have open.
type openFiles struct{ files, sockets, limit uint64 }

// maxOpenFiles bounds how many open files of a container are looked at for one list; of one that has more nothing is told of
// files.
const maxOpenFiles = 16 << 10

// Descriptors describes all metrics, always the same.
func Descriptors() []*cri.MetricDescriptor {
	var all []*cri.MetricDescriptor
	for _, m := range metrics {
		all = append(all, &cri.MetricDescriptor{Name: m.name, Help: m.help, LabelKeys: slices.Concat(baseKeys, m.keys)})
	}
	return all
}

// Metrics reads the metrics of sandboxes and of their running containers, one sandbox after the other, until ctx ends.
func (c *Collector) Metrics(ctx context.Context, all []Sandbox) iter.Seq[*cri.PodSandboxMetrics] {
	return func(yield func(*cri.PodSandboxMetrics) bool) {
		interfaces, _ := c.Interfaces(ctx, all)
		pass := c.newPass()
		for _, sb := range all {
			if ctx.Err() != nil {
				return
			}
			if m := pass.sandbox(sb, interfaces[ids.SandboxID(sb.Attributes.GetId())]); m != nil && !yield(m) {
				return
			}
		}
	}
}

// pass is one list. What all containers have in common is looked up once.
type pass struct {
	*Collector
	now     time.Time
	fs      *unix.Statfs_t
	device  string
	devices map[[2]uint64]string
}

func (c *Collector) newPass() *pass {
	p := &pass{Collector: c, now: time.Now(), devices: map[[2]uint64]string{}}
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Statfs(c.cfg.LayerDir, &fs) == nil && unix.Stat(c.cfg.LayerDir, &st) == nil {
		p.fs, p.device = &fs, p.deviceName(uint64(unix.Major(uint64(st.Dev))), uint64(unix.Minor(uint64(st.Dev))))
	}
	return p
}

// deviceName is a block device's path; empty for what is none, such as an overlay.
func (p *pass) deviceName(major, minor uint64) string {
	key := [2]uint64{major, minor}
	name, known := p.devices[key]
	if !known {
		raw, err := os.ReadFile(filepath.Join("/sys/dev/block", fmt.Sprintf("%d:%d", major, minor), "uevent"))
		for line := range strings.Lines(string(raw)) {
			if dev, ok := strings.CutPrefix(line, "DEVNAME="); ok && err == nil {
				name = "/dev/" + strings.TrimSpace(dev)
			}
		}
		p.devices[key] = name
	}
	return name
}

// sandbox tells of a sandbox and of its containers; nil when it is gone.
func (p *pass) sandbox(sb Sandbox, interfaces []network.InterfaceStat) *cri.PodSandboxMetrics {
	id, pod := sb.Attributes.GetId(), sb.Attributes.GetMetadata()
	out := &cri.PodSandboxMetrics{PodSandboxId: id}
	s := &subject{now: p.now, interfaces: interfaces, nameOf: p.deviceName, labels: labelsOf("", sb.Cgroup, "", id, pod)}
	if !sb.Shared {
		var ok bool
		if s.cgroup, ok = p.read(sb.Cgroup, cgroup.Full); !ok {
			return nil
		}
		s.processes = p.Collector.processes(sb.Cgroup)
	}
	out.Metrics = s.metrics()
	for _, ct := range sb.Containers {
		if ms := p.container(ct, pod); ms != nil {
			out.ContainerMetrics = append(out.ContainerMetrics, ms)
		}
	}
	return out
}

func (p *pass) container(ct Container, pod *cri.PodSandboxMetadata) *cri.ContainerMetrics {
	id := ct.Attributes.GetId()
	s := &subject{now: p.now, container: &ct, layers: p.fs, device: p.device, nameOf: p.deviceName,
		labels: labelsOf(ct.Attributes.GetMetadata().GetName(), ct.Cgroup, ct.Image, id, pod)}
	var ok bool
	if s.cgroup, ok = p.read(ct.Cgroup, cgroup.Full); !ok {
		return nil
	}
	if usage, ok := p.layers.usage(id, ct.Layer); ok {
		s.layer = &usage
	}
	s.processes, s.open = p.open(ct)
	return &cri.ContainerMetrics{ContainerId: id, Metrics: s.metrics()}
}

// open counts a container's processes and what they have open. A process may end, and its number be another's, between two
// looks: a metric does not mind.
func (p *pass) open(ct Container) (processes uint64, open *openFiles) {
	pids, err := p.cfg.Cgroups.PIDs(ct.Cgroup)
	if err != nil {
		p.cfg.Log.Warn("processes cannot be counted", "cgroup", ct.Cgroup, "error", err)
	}
	open = &openFiles{}
	left := maxOpenFiles
	for _, pid := range pids {
		files, sockets, err := proc.Files(pid, left)
		switch {
		case errdefs.IsNotFound(err):
			continue
		case err != nil:
			return uint64(len(pids)), nil
		}
		// A process without an open file takes some of what may be looked at too.
		if left -= files + 1; left <= 0 {
			return uint64(len(pids)), nil
		}
		open.files, open.sockets = open.files+uint64(files), open.sockets+uint64(sockets)
	}
	if ct.PID != 0 {
		if limits, err := proc.Limits(ct.PID); err == nil {
			open.limit = limits[proc.MaxOpenFiles].Soft // never unlimited: the kernel's own limit is a number
		}
	}
	return uint64(len(pids)), open
}

// baseKeys are the labels of all metrics, those that the kubelet's own metrics of containers have: id is the cgroup, name the
// container's id.
var baseKeys = []string{"container", "id", "image", "name", "namespace", "pod"}

func labelsOf(container, cgroup, image, id string, pod *cri.PodSandboxMetadata) []string {
	return []string{container, cgroup, image, id, pod.GetNamespace(), pod.GetName()}
}

// metrics evaluates the table.
func (s *subject) metrics() []*cri.Metric {
	all := make([]*cri.Metric, 0, 2*len(metrics))
	for i := range metrics {
		m := &metrics[i]
		m.of(s, func(value uint64, labels ...string) {
			values := s.labels
			if len(labels) > 0 {
				values = slices.Concat(values, labels)
			}
			one := &cri.Metric{Name: m.name, MetricType: m.kind, LabelValues: values, Value: number(value)}
			if m.measured && s.layer != nil {
				one.Timestamp = s.layer.at.UnixNano() // all others are live
			}
			all = append(all, one)
		})
	}
	return all
}
