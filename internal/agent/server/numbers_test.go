package server

import (
	"encoding/json"
	"flag"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod.dev/monopod/internal/agent/probes"
)

var rewrite = flag.Bool("rewrite", false, "write anew the lists of metric families in testdata")

// probed is a probe that has succeeded twice.
type probed struct{}

func (probed) Series() []probes.Series {
	return []probes.Series{{Namespace: "ns", Pod: "p", UID: "u", Container: "a", Type: "Readiness", Successful: 2, Seconds: 0.5}}
}

// scrape reads a path as Prometheus does.
func (b *bench) scrape(path string) map[string]*dto.MetricFamily {
	b.Helper()
	code, body := b.get(b.client("admin"), path, "")
	if code != http.StatusOK {
		b.Fatalf("%s: %d %s", path, code, body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		b.Fatalf("%s: %v in\n%s", path, err, body)
	}
	return all
}

// value is that of the metric that has these labels, and no others with a value.
func value(all map[string]*dto.MetricFamily, name string, labels map[string]string) (float64, bool) {
	for _, m := range all[name].GetMetric() {
		has := map[string]string{}
		for _, l := range m.Label {
			has[l.GetName()] = l.GetValue()
		}
		if maps.Equal(has, labels) {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue(), true
		}
	}
	return 0, false
}

// TestFamilies holds the names, types and labels of all metrics against a list: clients know them by these.
func TestFamilies(t *testing.T) {
	b := newBench(t)
	// The runtime has failed once, so that there is a count of failures.
	b.rt.Fail("ListPodSandbox", status.Error(codes.Internal, "broken"))
	b.scrape("/metrics/resource")
	b.rt.Fail("ListPodSandbox", nil)
	for _, name := range []string{"metrics-resource", "metrics-probes", "metrics-cadvisor", "metrics-cadvisor2", "metrics"} {
		b.rt.HasMetrics(name == "metrics-cadvisor2")
		path := "/" + strings.ReplaceAll(strings.TrimSuffix(name, "2"), "-", "/")
		var lines []string
		for family, f := range b.scrape(path) {
			if strings.HasPrefix(family, "go_") || strings.HasPrefix(family, "process_") {
				continue // the library's and the kernel's, by their versions
			}
			keys := map[string]bool{}
			for _, m := range f.Metric {
				for _, l := range m.Label {
					keys[l.GetName()] = true
				}
			}
			lines = append(lines, family+" "+strings.ToLower(f.GetType().String())+" "+strings.Join(slices.Sorted(maps.Keys(keys)), ","))
		}
		slices.Sort(lines)
		got := strings.Join(lines, "\n") + "\n"
		file := filepath.Join("testdata", name+".txt")
		if *rewrite {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || got != string(want) {
			t.Errorf("%s has (-rewrite writes it down):\n%s\nwant, %v:\n%s", path, got, err, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	b := newBench(t)
	resource := b.scrape("/metrics/resource")
	ours := map[string]string{"container": "a", "namespace": "ns", "pod": "p"}
	if v, ok := value(resource, "container_memory_working_set_bytes", ours); !ok || v != 2<<20 {
		t.Errorf("working set %v, %v", v, ok)
	}
	if v, ok := value(resource, "pod_memory_working_set_bytes", map[string]string{"namespace": "ns", "pod": "p"}); !ok || v != 4<<20 {
		t.Errorf("working set of the pod %v, %v", v, ok)
	}
	if v, ok := value(resource, "resource_scrape_error", nil); !ok || v != 0 {
		t.Errorf("scrape error %v, %v", v, ok)
	}
	if m := resource["container_cpu_usage_seconds_total"].GetMetric()[0]; m.GetTimestampMs() == 0 {
		t.Error("a sample has no time")
	}
	cadvisor := b.scrape("/metrics/cadvisor")
	if v, ok := value(cadvisor, "container_network_receive_bytes_total", map[string]string{
		"id": "/s0001", "interface": "eth0", "name": "s0001", "namespace": "ns", "pod": "p"}); !ok || v != 11 {
		t.Errorf("bytes received %v, %v", v, ok)
	}
	if v, ok := value(cadvisor, "container_memory_working_set_bytes", map[string]string{"id": "/"}); !ok || v == 0 {
		t.Errorf("the node's working set %v, %v", v, ok)
	}
	own := b.scrape("/metrics")
	if v, ok := value(own, "kubelet_running_containers", map[string]string{"container_state": "running"}); !ok || v != 1 {
		t.Errorf("running containers %v, %v", v, ok)
	}
	if v, ok := value(own, "kubelet_runtime_operations_total", map[string]string{"operation_type": "run_podsandbox"}); !ok || v != 1 {
		t.Errorf("sandboxes made %v, %v", v, ok)
	}
	if v, ok := value(own, "kubelet_http_requests_total", map[string]string{
		"method": "GET", "path": "metrics/resource", "server_type": "readwrite", "long_running": "false"}); !ok || v != 1 {
		t.Errorf("requests %v, %v", v, ok)
	}
	if v, ok := value(b.scrape("/metrics/probes"), "prober_probe_total", map[string]string{
		"container": "a", "namespace": "ns", "pod": "p", "pod_uid": "u", "probe_type": "Readiness", "result": "successful"}); !ok || v != 2 {
		t.Errorf("probes %v, %v", v, ok)
	}
}

func TestSummary(t *testing.T) {
	b := newBench(t)
	get := func(query string) (s stats.Summary) {
		code, body := b.get(b.client("admin"), "/stats/summary"+query, "")
		if err := json.Unmarshal([]byte(body), &s); err != nil || code != http.StatusOK {
			t.Fatalf("%d %s: %v", code, body, err)
		}
		return s
	}
	s := get("")
	if s.Node.NodeName != "n" || len(s.Pods) != 1 || s.Pods[0].PodRef.UID != "u" || s.Pods[0].Network == nil || s.Node.Runtime.ImageFs == nil || s.Node.Fs == nil {
		t.Errorf("summary %+v", s)
	}
	if s = get("?only_cpu_and_memory=true"); s.Node.Fs != nil || s.Pods[0].Network != nil || s.Pods[0].Containers[0].Memory == nil {
		t.Errorf("of processors and memory: %+v", s)
	}
	if code, body := b.get(b.client("admin"), "/stats/summary?only_cpu_and_memory=perhaps", ""); code != http.StatusBadRequest || !strings.Contains(body, "perhaps") {
		t.Errorf("%d %s", code, body)
	}
	var config struct {
		Kubelet map[string]any `json:"kubeletconfig"`
	}
	if code, body := b.get(b.client("admin"), "/configz", ""); json.Unmarshal([]byte(body), &config) != nil || code != http.StatusOK || config.Kubelet["maxPods"] != 7.0 {
		t.Errorf("%d %s", code, body)
	}
}

// TestARuntimeThatDoesNotTell: the endpoints answer, and say that there was an error.
func TestARuntimeThatDoesNotTell(t *testing.T) {
	b := newBench(t)
	b.rt.Fail("ListPodSandbox", status.Error(codes.Internal, "broken"))
	if v, ok := value(b.scrape("/metrics/resource"), "resource_scrape_error", nil); !ok || v != 1 {
		t.Errorf("resource_scrape_error %v, %v", v, ok)
	}
	if v, ok := value(b.scrape("/metrics/cadvisor"), "container_scrape_error", nil); !ok || v != 1 {
		t.Errorf("container_scrape_error %v, %v", v, ok)
	}
	if all := b.scrape("/metrics"); all["kubelet_node_name"] == nil || all["kubelet_running_pods"] != nil {
		t.Error("the agent's own metrics")
	}
	if code, body := b.get(b.client("admin"), "/stats/summary", ""); code != http.StatusInternalServerError || !strings.Contains(body, "broken") {
		t.Errorf("%d %s", code, body)
	}
}

// TestRightsOfNumbers: a kubelet's subresources, and nodes/proxy where a kubelet takes it too.
func TestRightsOfNumbers(t *testing.T) {
	b := newBench(t)
	for path, want := range map[string]string{
		"/stats/summary": "nodes/stats", "/metrics": "nodes/metrics", "/metrics/cadvisor": "nodes/metrics", "/metrics/resource": "nodes/metrics",
		"/metrics/probes": "nodes/metrics", "/configz": "nodes/configz nodes/proxy",
	} {
		b.mu.Lock()
		b.reviews = nil
		b.mu.Unlock()
		if code, body := b.get(b.client("stranger"+strings.ReplaceAll(path, "/", "-")), path, ""); code != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, code, body)
		}
		var asked []string
		b.mu.Lock()
		for _, r := range b.reviews {
			verb, what, _ := strings.Cut(strings.SplitN(r, " ", 2)[1], " ")
			if asked = append(asked, what); verb != "get" {
				t.Errorf("%s: %s", path, r)
			}
		}
		b.mu.Unlock()
		if got := strings.Join(asked, " "); got != want {
			t.Errorf("%s was authorized as %s, want %s", path, got, want)
		}
	}
}
