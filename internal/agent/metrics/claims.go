package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// claims tells of the volumes that claims stand for when it is asked.
type claims struct{ cfg AgentConfig }

func ofClaim(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("kubelet_volume_stats_"+name, help, []string{"namespace", "persistentvolumeclaim"}, nil)
}

// claimNumbers are what is told of a claim, by a kubelet's names.
var claimNumbers = []struct {
	desc *prometheus.Desc
	of   func(*stats.FsStats) *uint64
}{
	{ofClaim("capacity_bytes", "Capacity in bytes of the volume"), func(s *stats.FsStats) *uint64 { return s.CapacityBytes }},
	{ofClaim("available_bytes", "Number of available bytes in the volume"), func(s *stats.FsStats) *uint64 { return s.AvailableBytes }},
	{ofClaim("used_bytes", "Number of used bytes in the volume"), func(s *stats.FsStats) *uint64 { return s.UsedBytes }},
	{ofClaim("inodes", "Maximum number of inodes in the volume"), func(s *stats.FsStats) *uint64 { return s.Inodes }},
	{ofClaim("inodes_free", "Number of free inodes in the volume"), func(s *stats.FsStats) *uint64 { return s.InodesFree }},
	{ofClaim("inodes_used", "Number of used inodes in the volume"), func(s *stats.FsStats) *uint64 { return s.InodesUsed }},
}

// Describe implements prometheus.Collector.
func (claims) Describe(to chan<- *prometheus.Desc) {
	for _, n := range claimNumbers {
		to <- n.desc
	}
}

// Collect implements prometheus.Collector.
func (c claims) Collect(to chan<- prometheus.Metric) {
	if c.cfg.Claims == nil {
		return
	}
	all := c.cfg.Claims()
	for i := range all {
		for _, n := range claimNumbers {
			if v := n.of(&all[i].FsStats); v != nil && all[i].PVCRef != nil {
				to <- prometheus.MustNewConstMetric(n.desc, prometheus.GaugeValue, float64(*v), all[i].PVCRef.Namespace, all[i].PVCRef.Name)
			}
		}
	}
}
