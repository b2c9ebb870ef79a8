package probes

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod.dev/monopod/internal/agent/handlers"
)

// asServer has this program be the server of the benchmark's pods, as a container's process would be: its time is not a node's.
const asServer = "MONOPOD_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	go func() {
		io.Copy(io.Discard, os.Stdin) // until the benchmark ends
		os.Exit(0)
	}()
	panic(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })))
}

// BenchmarkNode measures what 300 pods with two httpGet probes of a period of 10 s each cost this process and the kernel on its behalf. One operation
// is one period.
func BenchmarkNode(b *testing.B) {
	const pods, period = 300, 10
	port := server(b)
	asks := &counting{Handlers: handlers.New(nil), come: make(chan struct{}, 1)}
	m := New(Config{Handlers: asks, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx)
	}()
	for i := range pods {
		get := func(path string) *v1.Probe {
			return &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: path, Port: intstr.FromInt(port)}},
				PeriodSeconds: period, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3}
		}
		uid := fmt.Sprint(i)
		x := target(uid, uid, nil, get("/live"), get("/ready"))
		x.IP, x.StartedAt = "127.0.0.1", x.StartedAt.Add(-time.Hour)
		m.Set(types.UID(uid), []Target{x}, func() {})
	}
	asks.await(2 * pods)
	before, start, first := used(), time.Now(), asks.all.Load()
	for n := int64(1); b.Loop(); n++ {
		asks.await(first + n*2*pods)
	}
	cpu, all := used()-before, asks.all.Load()-first
	b.ReportMetric(100*cpu.Seconds()/time.Since(start).Seconds(), "cpu-%")
	b.ReportMetric(float64(cpu.Microseconds())/float64(all), "cpu-µs/probe")
	for _, s := range m.Series() {
		if s.Failed+s.Unknown > 0 {
			b.Errorf("of %s not all succeeded: %+v", s.Pod, s)
		}
	}
	cancel()
	<-ended
}

// counting counts what is asked.
type counting struct {
	Handlers
	all    atomic.Int64
	wanted atomic.Int64
	come   chan struct{}
}

func (c *counting) Probe(ctx context.Context, on handlers.Subject, what *v1.ProbeHandler, timeout time.Duration) handlers.Answer {
	a := c.Handlers.Probe(ctx, on, what, timeout)
	if c.all.Add(1) == c.wanted.Load() {
		c.come <- struct{}{}
	}
	return a
}

func (c *counting) await(n int64) {
	c.wanted.Store(n)
	if c.all.Load() < n {
		<-c.come
	}
}

func server(b *testing.B) (port int) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asServer+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	if _, err := fmt.Fscan(out, &port); err != nil {
		b.Fatalf("the server says no port: %v", err)
	}
	return port
}

// used is the processor time that this process has used.
func used() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
