package metrics

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod.dev/monopod/internal/agent/podstats"
)

// CAdvisor writes /metrics/cadvisor: the metrics that the runtime has of its containers (KEP-2371) or, where it has none, what its stats tell by the same names;
// and the node's, whose id is "/". cpus is how many processors it has. s is nil when there was an error, which is all that is told then.
func CAdvisor(cpus int, s *podstats.Snapshot, runtime *podstats.Metrics) []byte {
	t := newText()
	t.describe("container_scrape_error", gauge, "1 if the containers' metrics could not be had, else 0")
	t.describe("machine_cpu_cores", gauge, "Number of logical CPU cores")
	t.describe("machine_memory_bytes", gauge, "Memory of the machine, in bytes")
	t.add("machine_cpu_cores", time.Time{}, float64(cpus))
	if s == nil {
		t.add("container_scrape_error", time.Time{}, 1)
		return t.bytes()
	}
	t.add("container_scrape_error", time.Time{}, 0)
	t.add("machine_memory_bytes", time.Time{}, float64(s.MemoryTotal))
	c := &cadvisor{text: t, columns: map[string][]string{}}
	if runtime != nil {
		c.runtime(runtime, exact(s))
	}
	c.describeOwn()
	c.node(&s.Node)
	if runtime == nil {
		for i := range s.Pods {
			c.pod(s, &s.Pods[i])
		}
	}
	return t.bytes()
}

// cpuTotal is counted by CRI's metrics in whole seconds, by its stats in nanoseconds.
const cpuTotal = "container_cpu_usage_seconds_total"

// exact are the nanoseconds of sandboxes and containers by their ids.
func exact(s *podstats.Snapshot) map[string]uint64 {
	all := map[string]uint64{}
	add := func(key podstats.Key, cpu *stats.CPUStats) {
		if cpu != nil && cpu.UsageCoreNanoSeconds != nil {
			all[s.IDs[key].ID] = *cpu.UsageCoreNanoSeconds
		}
	}
	for _, p := range s.Pods {
		add(podstats.Key{UID: types.UID(p.PodRef.UID)}, p.CPU)
		for _, ct := range p.Containers {
			add(podstats.Key{UID: types.UID(p.PodRef.UID), Container: ct.Name}, ct.CPU)
		}
	}
	return all
}

// cadvisor writes metrics by cAdvisor's names.
type cadvisor struct {
	*text
	// columns are the names of a family's labels, in the order in which the runtime gives the values.
	columns map[string][]string
}

// runtime adds the runtime's own metrics.
func (c *cadvisor) runtime(m *podstats.Metrics, exact map[string]uint64) {
	kinds := map[criv1.MetricType]kind{criv1.MetricType_COUNTER: counter, criv1.MetricType_GAUGE: gauge}
	described := map[string]*criv1.MetricDescriptor{}
	for _, d := range m.Descriptors {
		described[d.Name] = d
	}
	add := func(id string, all []*criv1.Metric) {
		for _, one := range all {
			d := described[one.Name]
			if d == nil {
				continue
			}
			if c.columns[one.Name] == nil {
				c.columns[one.Name] = d.LabelKeys
				c.describe(one.Name, kinds[one.MetricType], d.Help, d.LabelKeys...)
			}
			value, at := float64(one.GetValue().GetValue()), time.Time{}
			if n, ok := exact[id]; ok && one.Name == cpuTotal {
				value = seconds(n)
			}
			if one.Timestamp != 0 { // else it was read just now
				at = time.Unix(0, one.Timestamp)
			}
			c.add(one.Name, at, value, one.LabelValues...)
		}
	}
	for _, p := range m.Pods {
		add(p.PodSandboxId, p.Metrics)
		for _, ct := range p.ContainerMetrics {
			add(ct.ContainerId, ct.Metrics)
		}
	}
}

// identity are the labels that all metrics of containers have.
var identity = []string{"container", "id", "image", "name", "namespace", "pod"}

// own are the families that stats are written as.
var own = []struct {
	name, help string
	kind       kind
	keys       []string // beside identity
}{
	{cpuTotal, "CPU time spent, in seconds", counter, []string{"cpu"}},
	{"container_fs_inodes_free", "Number of inodes that are free on the file system", gauge, nil},
	{"container_fs_inodes_total", "Number of inodes of the file system", gauge, nil},
	{"container_fs_limit_bytes", "Size of the file system, in bytes", gauge, nil},
	{"container_fs_usage_bytes", "Size of what is written, in bytes", gauge, []string{"device"}},
	{"container_last_seen", "When the metrics were read, in seconds since 1970", gauge, nil},
	{"container_memory_failures_total", "Number of page faults", counter, []string{"failure_type", "scope"}},
	{"container_memory_rss", "Anonymous memory, in bytes", gauge, nil},
	{"container_memory_swap", "Swap in use, in bytes", gauge, nil},
	{"container_memory_usage_bytes", "Memory in use, with page cache, in bytes", gauge, nil},
	{"container_memory_working_set_bytes", "Memory in use but for page cache that was not used lately, in bytes", gauge, nil},
	{"container_network_receive_bytes_total", "Bytes received", counter, []string{"interface"}},
	{"container_network_receive_errors_total", "Number of errors while receiving", counter, []string{"interface"}},
	{"container_network_transmit_bytes_total", "Bytes sent", counter, []string{"interface"}},
	{"container_network_transmit_errors_total", "Number of errors while sending", counter, []string{"interface"}},
	{"container_processes", "Number of processes", gauge, nil},
	{"container_start_time_seconds", "Start, in seconds since 1970", gauge, nil},
}

// describeOwn describes what the runtime has not: a family has one set of labels.
func (c *cadvisor) describeOwn() {
	for _, f := range own {
		if c.columns[f.name] == nil {
			c.columns[f.name] = slices.Concat(identity, f.keys)
			c.describe(f.name, f.kind, f.help, c.columns[f.name]...)
		}
	}
}

// put adds a row, whose labels are put in the order of the family's.
func (c *cadvisor) put(name string, value float64, labels map[string]string, more ...string) {
	all := maps.Clone(labels)
	for i := 0; i+1 < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	values := make([]string, len(c.columns[name]))
	for i, key := range c.columns[name] {
		values[i] = all[key]
	}
	c.add(name, time.Time{}, value, values...)
}

func (c *cadvisor) optional(name string, value *uint64, labels map[string]string, more ...string) {
	if value != nil {
		c.put(name, float64(*value), labels, more...)
	}
}

// node adds the whole machine, as cAdvisor has the root of all cgroups.
func (c *cadvisor) node(n *stats.NodeStats) {
	root := map[string]string{"id": "/"}
	c.usage(root, n.CPU, n.Memory, n.Swap)
	c.network(root, n.Network)
	if n.CPU != nil {
		c.put("container_last_seen", float64(n.CPU.Time.Unix()), root)
	}
	c.put("container_start_time_seconds", float64(n.StartTime.Unix()), root)
}

// pod adds what stats tell of a pod and its containers. CRI's stats know no cgroups: the id is "/" and the runtime's.
func (c *cadvisor) pod(s *podstats.Snapshot, p *stats.PodStats) {
	labels := func(container string) map[string]string {
		id := s.IDs[podstats.Key{UID: types.UID(p.PodRef.UID), Container: container}]
		return map[string]string{
			"container": container, "id": "/" + id.ID, "image": id.Image, "name": id.ID, "namespace": p.PodRef.Namespace, "pod": p.PodRef.Name,
		}
	}
	whole := labels("")
	c.usage(whole, p.CPU, p.Memory, p.Swap)
	c.network(whole, p.Network)
	c.put("container_last_seen", float64(s.At.Unix()), whole)
	if p.ProcessStats != nil {
		c.optional("container_processes", p.ProcessStats.ProcessCount, whole)
	}
	for i := range p.Containers {
		ct := &p.Containers[i]
		of := labels(ct.Name)
		c.usage(of, ct.CPU, ct.Memory, ct.Swap)
		if ct.Rootfs != nil {
			c.optional("container_fs_usage_bytes", ct.Rootfs.UsedBytes, of)
		}
		c.put("container_last_seen", float64(s.At.Unix()), of)
		c.put("container_start_time_seconds", float64(ct.StartTime.Unix()), of)
	}
}

func (c *cadvisor) usage(labels map[string]string, cpu *stats.CPUStats, m *stats.MemoryStats, swap *stats.SwapStats) {
	if cpu != nil && cpu.UsageCoreNanoSeconds != nil {
		c.put(cpuTotal, seconds(*cpu.UsageCoreNanoSeconds), labels, "cpu", "total")
	}
	if m != nil {
		c.optional("container_memory_rss", m.RSSBytes, labels)
		c.optional("container_memory_usage_bytes", m.UsageBytes, labels)
		c.optional("container_memory_working_set_bytes", m.WorkingSetBytes, labels)
		for _, scope := range []string{"container", "hierarchy"} {
			c.optional("container_memory_failures_total", m.PageFaults, labels, "failure_type", "pgfault", "scope", scope)
			c.optional("container_memory_failures_total", m.MajorPageFaults, labels, "failure_type", "pgmajfault", "scope", scope)
		}
	}
	if swap != nil {
		c.optional("container_memory_swap", swap.SwapUsageBytes, labels)
	}
}

func (c *cadvisor) network(labels map[string]string, n *stats.NetworkStats) {
	if n == nil {
		return
	}
	for _, i := range n.Interfaces {
		if i.Name == "lo" {
			continue
		}
		c.optional("container_network_receive_bytes_total", i.RxBytes, labels, "interface", i.Name)
		c.optional("container_network_receive_errors_total", i.RxErrors, labels, "interface", i.Name)
		c.optional("container_network_transmit_bytes_total", i.TxBytes, labels, "interface", i.Name)
		c.optional("container_network_transmit_errors_total", i.TxErrors, labels, "interface", i.Name)
	}
}
