package metrics

import (
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Operations count the calls of the container runtime. They are safe for concurrent use.
type Operations struct {
	operations, failed *prometheus.CounterVec
	durations          *prometheus.HistogramVec
}

// NewOperations begins to count.
func NewOperations() *Operations {
	return &Operations{
		operations: counts("runtime_operations_total", "Number of calls of the container runtime, by operation", "operation_type"),
		failed:     counts("runtime_operations_errors_total", "Number of calls of the container runtime that failed, by operation", "operation_type"),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "runtime_operations_duration_seconds", Help: "Duration of calls of the container runtime in seconds, by operation",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14),
		}, []string{"operation_type"}),
	}
}

// Count counts a call of the container runtime: method is gRPC's, "/runtime.v1.RuntimeService/RunPodSandbox". That a runtime has no such method is no failure.
func (o *Operations) Count(method string, took time.Duration, err error) {
	operation := operationOf(method)
	o.operations.WithLabelValues(operation).Inc()
	o.durations.WithLabelValues(operation).Observe(took.Seconds())
	if err != nil && status.Code(err) != codes.Unimplemented {
		o.failed.WithLabelValues(operation).Inc()
	}
}

// operationOf is a method as a kubelet calls it: "run_podsandbox".
func operationOf(method string) string {
	name := method[strings.LastIndex(method, "/")+1:]
	if name == "UpdateContainerResources" {
		return "update_container"
	}
	var out strings.Builder
	for i, r := range strings.ReplaceAll(name, "PodSandbox", "Podsandbox") {
		if unicode.IsUpper(r) && i > 0 {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}
