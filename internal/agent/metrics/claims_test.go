package metrics

import (
	"net/http/httptest"
	"strings"
	"testing"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// TestClaims: what is known of a claim's volume is told by a kubelet's names, and nothing else.
func TestClaims(t *testing.T) {
	n := func(v uint64) *uint64 { return &v }
	a := NewAgent(AgentConfig{Claims: func() []stats.VolumeStats {
		return []stats.VolumeStats{
			{Name: "v", PVCRef: &stats.PVCReference{Namespace: "ns", Name: "c"}, FsStats: stats.FsStats{CapacityBytes: n(10), AvailableBytes: n(6), UsedBytes: n(4), Inodes: n(3), InodesFree: n(1), InodesUsed: n(2)}},
			{Name: "v", PVCRef: &stats.PVCReference{Namespace: "ns", Name: "large"}, FsStats: stats.FsStats{CapacityBytes: n(20)}},
			{Name: "own", FsStats: stats.FsStats{CapacityBytes: n(30)}},
		}
	}})
	w := httptest.NewRecorder()
	a.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var got []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "kubelet_volume_stats_") {
			got = append(got, strings.TrimSpace(strings.TrimPrefix(line, "kubelet_volume_stats_")))
		}
	}
	const c = `{namespace="ns",persistentvolumeclaim="c"} `
	want := []string{
		"available_bytes" + c + "6", "capacity_bytes" + c + "10", `capacity_bytes{namespace="ns",persistentvolumeclaim="large"} 20`,
		"inodes" + c + "3", "inodes_free" + c + "1", "inodes_used" + c + "2", "used_bytes" + c + "4",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}
