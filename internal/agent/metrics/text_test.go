package metrics

import (
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/internal/agent/probes"
)

func TestText(t *testing.T) {
	x := newText()
	x.describe("b_total", counter, "back\\slash\nline", "k", "l")
	x.describe("a", gauge, "first")
	x.describe("none", gauge, "without a row")
	x.add("b_total", time.UnixMilli(1500), 0.25, "quo\"te", "line\n\\")
	x.add("b_total", time.Time{}, 1e18, "", "x")
	x.add("a", time.Time{}, 3)
	x.add("a", time.Time{}, 3, "too many")
	x.add("unknown", time.Time{}, 3)
	want := `# HELP a first
# TYPE a gauge
a 3
# HELP b_total back\\slash\nline
# TYPE b_total counter
b_total{k="quo\"te",l="line\n\\"} 0.25 1500
b_total{l="x"} 1e+18
`
	if got := string(x.bytes()); got != want {
		t.Errorf("written:\n%s\nwant:\n%s", got, want)
	}
}

func TestProbes(t *testing.T) {
	of := func(container string) probes.Series {
		return probes.Series{Namespace: "ns", Pod: "p", UID: "u", Container: container, Type: "Liveness"}
	}
	a, b := of("a"), of("b")
	a.Failed = 1
	b.Successful, b.Seconds, b.Within = 2, 3.5, [len(probes.Buckets)]uint64{7: 1, 8: 1, 9: 2, 10: 2}
	got := string(Probes([]probes.Series{a, b}))
	want := `prober_probe_total{container="a",namespace="ns",pod="p",pod_uid="u",probe_type="Liveness",result="failed"} 1
prober_probe_total{container="b",namespace="ns",pod="p",pod_uid="u",probe_type="Liveness",result="successful"} 2
`
	for _, row := range []string{`_bucket{container="b",namespace="ns",pod="p",probe_type="Liveness",le="0.5"} 0`, `_bucket{container="b",namespace="ns",pod="p",probe_type="Liveness",le="1"} 1`,
		`_bucket{container="b",namespace="ns",pod="p",probe_type="Liveness",le="+Inf"} 2`, `_sum{container="b",namespace="ns",pod="p",probe_type="Liveness"} 3.5`,
		`_count{container="b",namespace="ns",pod="p",probe_type="Liveness"} 2`} {
		if !strings.Contains(got, "\nprober_probe_duration_seconds"+row+"\n") {
			t.Errorf("%s is not in\n%s", row, got)
		}
	}
	if !strings.HasSuffix(got, want) || len(Probes(nil)) > 0 {
		t.Errorf("written:\n%s\nwant:\n%s", got, want)
	}
}

func TestOperations(t *testing.T) {
	for method, want := range map[string]string{
		"/runtime.v1.RuntimeService/RunPodSandbox": "run_podsandbox", "/runtime.v1.RuntimeService/UpdateContainerResources": "update_container",
		"/runtime.v1.ImageService/ImageFsInfo": "image_fs_info", "/runtime.v1.RuntimeService/ListPodSandboxStats": "list_podsandbox_stats",
		"/runtime.v1.RuntimeService/ExecSync": "exec_sync",
	} {
		if got := operationOf(method); got != want {
			t.Errorf("%s is %s, want %s", method, got, want)
		}
	}
}
