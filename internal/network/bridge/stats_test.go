package bridge

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/test/harness"
)

// The counters are those that the sandbox itself sees.
func TestInterfaceStats(t *testing.T) {
	h := newHost(t)
	cfg := Config{DB: h.openDB("state.db"), Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}}
	b := h.bridge(cfg)
	one, two := h.sandbox("one"), h.sandbox("two")
	h.connectPorts(b, "one", one)
	h.connectPorts(b, "two", two)
	h.serve(one, ":80")
	for range 5 {
		h.ask(two, "10.201.0.2:80")
	}
	check := func(b *Bridge) {
		t.Helper()
		// Something may be on its way still (a closing connection): asked until both say the same.
		var got network.InterfaceStat
		var want map[string]uint64
		for range 100 {
			stats, err := b.InterfaceStats(t.Context(), map[ids.SandboxID]string{"one": one, "nobody": "/none"})
			h.must(err)
			if len(stats) != 1 || len(stats["one"]) != 1 {
				t.Fatalf("counters %v", stats)
			}
			got, want = stats["one"][0], h.counters(one)
			if got == (network.InterfaceStat{Name: "eth0", RxBytes: want["rx_bytes"], RxPackets: want["rx_packets"], RxErrors: want["rx_errors"], RxDropped: got.RxDropped,
				TxBytes: want["tx_bytes"], TxPackets: want["tx_packets"], TxErrors: want["tx_errors"], TxDropped: got.TxDropped}) && got.RxPackets > 15 && got.TxPackets > 15 {
				return
			}
		}
		t.Errorf("counters %+v, the sandbox sees %v", got, want)
	}
	check(b)
	again := h.bridge(cfg)
	h.must(again.Reconcile(t.Context(), map[ids.SandboxID]string{"one": one, "two": two}))
	check(again)
	h.must(again.Teardown(t.Context(), "one"))
	if stats, err := again.InterfaceStats(t.Context(), map[ids.SandboxID]string{"one": one}); err != nil || len(stats) != 0 {
		t.Errorf("after Teardown: %v, %v", stats, err)
	}
}

// counters reads what a sandbox sees of its interface.
func (h *testHost) counters(path string) map[string]uint64 {
	out := map[string]uint64{}
	h.in(path, func() error {
		raw, err := os.ReadFile("/proc/thread-self/net/dev")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(raw)) {
			f := strings.Fields(line)
			if f[0] != "eth0:" {
				continue
			}
			for name, i := range map[string]int{"rx_bytes": 1, "rx_packets": 2, "rx_errors": 3, "tx_bytes": 9, "tx_packets": 10, "tx_errors": 11} {
				if out[name], err = strconv.ParseUint(f[i], 10, 64); err != nil {
					return fmt.Errorf("%q: %w", line, err)
				}
			}
		}
		return nil
	})
	return out
}

// Asking for the counters of many sandboxes is one question, and its cost is small.
func TestInterfaceStatsAreCheap(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	all := map[ids.SandboxID]string{}
	for i := range 100 {
		id := fmt.Sprint("s", i)
		all[ids.SandboxID(id)] = h.sandbox(id)
		h.connectPorts(b, id, all[ids.SandboxID(id)])
	}
	var took []time.Duration
	for range 20 {
		begin := time.Now()
		stats, err := b.InterfaceStats(t.Context(), all)
		took = append(took, time.Since(begin))
		if err != nil || len(stats) != len(all) {
			t.Fatalf("%d counters, %v", len(stats), err)
		}
	}
	slices.Sort(took)
	t.Logf("p50 %v for %d sandboxes", took[len(took)/2], len(all))
	if took[0] > 2*time.Millisecond*harness.SlowFactor() {
		t.Errorf("%v for %d sandboxes at best", took[0], len(all))
	}
}
