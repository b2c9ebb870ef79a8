package metrics

import (
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// AgentConfig says what the agent's own metrics tell beside what they count.
type AgentConfig struct {
	// NodeName is the node's, Version that of the kubelet in whose place the agent stands.
	NodeName, Version string
	// Desired is how many pods are bound to the node.
	Desired func() int
	// Operations are the calls of the container runtime; nil: nobody counts them.
	Operations *Operations
	// Running is how many pods run, and how many containers there are by state; ok is false when the runtime does not tell.
	Running func() (pods int, containers map[string]int, ok bool)
	// Claims are the volumes that claims stand for, as they were measured last, each claim once; nil: nobody measures them.
	Claims func() []stats.VolumeStats
}

// Agent counts what the agent does, by a kubelet's names, in a registry of its own. It is safe for concurrent use.
type Agent struct {
	registry         *prometheus.Registry
	requests         *prometheus.CounterVec
	requestDurations *prometheus.HistogramVec
	inflight         *prometheus.GaugeVec
}

const subsystem = "kubelet"

func counts(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}, labels)
}

// requestLabels are those of the metrics of HTTP requests.
var requestLabels = []string{"method", "path", "server_type", "long_running"}

// NewAgent makes the metrics.
func NewAgent(cfg AgentConfig) *Agent {
	a := &Agent{
		registry: prometheus.NewRegistry(),
		requests: counts("http_requests_total", "Number of HTTP requests to the agent", requestLabels...),
		requestDurations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "http_requests_duration_seconds", Help: "Duration of HTTP requests to the agent in seconds", Buckets: prometheus.DefBuckets,
		}, requestLabels),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "http_inflight_requests", Help: "Number of HTTP requests to the agent that are being answered",
		}, requestLabels),
	}
	name := prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: "node_name", Help: "The node's name. The value is always 1"}, []string{"node"})
	name.WithLabelValues(cfg.NodeName).Set(1)
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubernetes_build_info", Help: "What was built. The value is always 1"},
		[]string{"git_version", "go_version", "platform"})
	build.WithLabelValues(cfg.Version, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH).Set(1)
	a.registry.MustRegister(
		a.requests, a.requestDurations, a.inflight, name, build, pods{cfg}, claims{cfg},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	if o := cfg.Operations; o != nil {
		a.registry.MustRegister(o.operations, o.failed, o.durations)
	}
	return a
}

// Handler serves /metrics.
func (a *Agent) Handler() http.Handler {
	return promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{DisableCompression: true})
}

// Request counts an HTTP request from now on until done is called. path is what the request is for, without what it names.
func (a *Agent) Request(method, path string, longRunning bool) (done func()) {
	labels := []string{method, path, "readwrite", strconv.FormatBool(longRunning)}
	begin := time.Now()
	a.requests.WithLabelValues(labels...).Inc()
	a.inflight.WithLabelValues(labels...).Inc()
	return func() {
		a.inflight.WithLabelValues(labels...).Dec()
		a.requestDurations.WithLabelValues(labels...).Observe(time.Since(begin).Seconds())
	}
}

// pods tells of the node's pods when it is asked.
type pods struct{ cfg AgentConfig }

var (
	desiredPods       = prometheus.NewDesc("kubelet_desired_pods", "Number of pods that are bound to the node", []string{"static"}, nil)
	runningPods       = prometheus.NewDesc("kubelet_running_pods", "Number of pods that have a running sandbox", nil, nil)
	runningContainers = prometheus.NewDesc("kubelet_running_containers", "Number of containers by their state", []string{"container_state"}, nil)
)

// Describe implements prometheus.Collector.
func (pods) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{desiredPods, runningPods, runningContainers} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (p pods) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	if p.cfg.Desired != nil {
		gauge(desiredPods, p.cfg.Desired(), "")
	}
	if p.cfg.Running == nil {
		return
	}
	if n, containers, ok := p.cfg.Running(); ok {
		gauge(runningPods, n)
		for state, n := range containers {
			gauge(runningContainers, n, state)
		}
	}
}
