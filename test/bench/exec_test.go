package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// How many commands run at once, and how many each of their callers runs, one after the other.
const (
	execsAtOnce   = 200
	execsByCaller = 10
)

// BenchmarkExecs runs commands in a container, 200 at once, and tells how much longer the slowest take than most: who waits is to wait for
// those before it, not for luck.
func BenchmarkExecs(b *testing.B) {
	p := startMonopod(b)
	made := p.up(b, sample{})
	var times []time.Duration
	for b.Loop() {
		times = append(times, p.execs(b, made)...)
	}
	b.StopTimer()
	p.removeAll(b)
	p50, p99 := quantile(times, 0.5), quantile(times, 0.99)
	b.ReportMetric(p50, "p50-ms")
	b.ReportMetric(p99, "p99-ms")
	b.ReportMetric(p99/p50, "p99/p50")
	b.ReportMetric(float64(len(times))/b.Elapsed().Seconds(), "execs/s")
	b.ReportMetric(0, "ns/op")
}

// execs returns what each command took.
func (p *peer) execs(b *testing.B, in pod) (times []time.Duration) {
	b.Helper()
	var wg sync.WaitGroup
	took := make(chan time.Duration, execsAtOnce*execsByCaller)
	for range execsAtOnce {
		wg.Go(func() {
			for range execsByCaller {
				begin := time.Now()
				res, err := p.rt.ExecSync(context.Background(), &cri.ExecSyncRequest{ContainerId: in.container, Cmd: []string{"true"}, Timeout: 60})
				if err == nil && res.ExitCode != 0 {
					err = fmt.Errorf("true exits with %d: %s", res.ExitCode, res.Stderr)
				}
				if err != nil {
					b.Error(err)
					return
				}
				took <- time.Since(begin)
			}
		})
	}
	wg.Wait()
	close(took)
	for t := range took {
		times = append(times, t)
	}
	return times
}
