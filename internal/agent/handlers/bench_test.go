package handlers

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// BenchmarkHTTPProbe measures what an httpGet costs this process and the kernel on its behalf, the server included, which is in the same process.
func BenchmarkHTTPProbe(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok")) }))
	defer server.Close()
	host, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	number, _ := strconv.Atoi(port)
	what := &v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt(number)}}
	on := Subject{Pod: &v1.Pod{}, Container: &v1.Container{Name: "c"}, IP: host}
	for _, way := range []string{"ours", "http.Transport"} {
		b.Run(way, func(b *testing.B) {
			h := New(nil)
			if way != "ours" {
				h.web.client.Transport = h.web.client.Transport.(byScheme).tls
			}
			b.ReportAllocs()
			start := used()
			for b.Loop() {
				if a := h.Probe(context.Background(), on, what, 10*time.Second); a.Result != Success {
					b.Fatal(a)
				}
			}
			b.ReportMetric(float64((used()-start).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

// used is the processor time that this process has used.
func used() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
