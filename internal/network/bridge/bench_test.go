package bridge

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/test/harness"
)

// latencies are what operations have taken.
type latencies []time.Duration

func (l latencies) at(percent int) time.Duration {
	if len(l) == 0 {
		return 0
	}
	s := slices.Clone(l)
	slices.Sort(s)
	return s[min(len(s)-1, len(s)*percent/100)]
}

// cycle connects and disconnects a sandbox, whose namespace is made before and ended after, as a runtime does.
func (h *testHost) cycle(b *Bridge, id, path string, ports ...network.HostPort) (up, down time.Duration, err error) {
	begin := time.Now()
	if _, err := b.Setup(h.t.Context(), network.Request{SandboxID: ids.SandboxID(id), NetNS: path, HostPorts: ports}); err != nil {
		return 0, 0, err
	}
	up = time.Since(begin)
	begin = time.Now()
	err = b.Teardown(h.t.Context(), ids.SandboxID(id))
	down = time.Since(begin)
	h.drop(path)
	return up, down, err
}

// BenchmarkSandbox is the time to connect and to disconnect, alone and eight at a time.
func BenchmarkSandbox(b *testing.B) {
	for name, r := range map[string][]netip.Prefix{"IPv4": testRanges, "both families": dualRanges} {
		for _, workers := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s, %d at a time", name, workers), func(b *testing.B) {
				h := newHost(b)
				bridge := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: r}})
				var mu sync.Mutex
				var ups, downs latencies
				var wg sync.WaitGroup
				jobs := make(chan string)
				b.ResetTimer()
				for range workers {
					wg.Go(func() {
						for id := range jobs {
							up, down, err := h.cycle(bridge, id, h.sandbox(id))
							mu.Lock()
							ups, downs = append(ups, up), append(downs, down)
							mu.Unlock()
							if err != nil {
								b.Error(err)
							}
						}
					})
				}
				for i := range b.N {
					jobs <- fmt.Sprint("s", i)
				}
				close(jobs)
				wg.Wait()
				b.StopTimer()
				b.ReportMetric(float64(ups.at(50).Microseconds()), "µs-up-p50")
				b.ReportMetric(float64(ups.at(90).Microseconds()), "µs-up-p90")
				b.ReportMetric(float64(downs.at(50).Microseconds()), "µs-down-p50")
			})
		}
	}
}

// TestCostIsFlat: beside 300 sandboxes, with a host port each, connecting one more costs what it costs on a host that has
// none. Both are measured by turns, so that what else this machine does counts for both.
func TestCostIsFlat(t *testing.T) {
	h := newHost(t)
	cfg := Config{DB: h.openDB("state.db"), Network: podnet.Network{Name: "mpt0", Ranges: ranges("10.201.0.0/22", "fd00:201::/64")}}
	full := h.bridge(cfg)
	other := h.sandbox("other-host")
	otherDB := h.openDB("other.db")
	var empty *Bridge
	h.in(other, func() (err error) {
		if empty, err = New(t.Context(), Config{DB: otherDB, Network: podnet.Network{Name: "mpt0", Ranges: cfg.Network.Ranges}}); err != nil {
			return err
		}
		return empty.Start(t.Context())
	})
	defer empty.Close()
	many := int(300 / harness.SlowFactor())
	live := map[ids.SandboxID]string{}
	for i := range many {
		id := fmt.Sprint("s", i)
		live[ids.SandboxID(id)] = h.sandbox(id)
		h.connectPorts(full, id, live[ids.SandboxID(id)], network.HostPort{Protocol: "TCP", HostPort: uint16(10000 + i), ContainerPort: 80})
	}
	var beside, alone latencies
	for i := range 40 {
		for b, l := range map[*Bridge]*latencies{full: &beside, empty: &alone} {
			id := fmt.Sprint("more", i)
			up, _, err := h.cycle(b, id, h.sandbox(fmt.Sprint(id, "-", b == full)), network.HostPort{Protocol: "TCP", HostPort: 20000, ContainerPort: 80})
			h.must(err)
			*l = append(*l, up)
			h.departed(b) // not while the kernel ends the namespace before
		}
	}
	var first, status time.Duration
	for range 3 {
		first = max(first, status)
		begin := time.Now()
		h.must(full.Status(t.Context()))
		status = time.Since(begin)
	}
	again := h.bridge(cfg)
	begin := time.Now()
	h.must(again.Reconcile(t.Context(), live))
	reconcile := time.Since(begin)
	begin = time.Now()
	h.must(again.Reconcile(t.Context(), nil))
	h.inUse(again)
	t.Logf("one more beside %d: p20 %v p50 %v, beside none: p20 %v p50 %v; status %v, then %v; reconcile %v; freeing all %v", many,
		beside.at(20), beside.at(50), alone.at(20), alone.at(50), first, status, reconcile, time.Since(begin))
	// The faster ones are compared: the others had to wait for somebody else. A machine that is not quiet has its share still.
	if beside.at(20) > alone.at(20)*13/10+time.Millisecond*harness.SlowFactor() {
		t.Errorf("beside %d sandboxes it takes %v, beside none %v", many, beside.at(20), alone.at(20))
	}
	h.in(other, func() error { return empty.Remove(t.Context()) })
}

// departed waits until nothing leaves.
func (h *testHost) departed(b *Bridge) {
	for end := time.Now().Add(time.Minute); b.sandboxes.leaving.some(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			h.t.Error("a sandbox leaves and leaves")
			return
		}
	}
}
