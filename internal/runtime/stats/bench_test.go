package stats

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/test/harness"
)

// counters is a network with one interface for each sandbox.
type counters struct{}

func (counters) InterfaceStats(_ context.Context, sandboxes map[ids.SandboxID]string) (map[ids.SandboxID][]network.InterfaceStat, error) {
	all := map[ids.SandboxID][]network.InterfaceStat{}
	for id := range sandboxes {
		all[id] = []network.InterfaceStat{{Name: "eth0", RxBytes: 1}}
	}
	return all, nil
}

// hundred makes 20 sandboxes with five containers each, with real cgroups that are gone after the test.
func hundred(t testing.TB) (*Collector, []Sandbox) {
	t.Helper()
	h, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	root := fmt.Sprintf("/mp-test-stats-%d", os.Getpid())
	t.Cleanup(func() {
		if err := h.RemoveTree(root); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	var all []Sandbox
	for i := range 20 {
		id := fmt.Sprintf("%064d", i)
		sb := Sandbox{Attributes: &cri.PodSandboxAttributes{Id: id, Metadata: &cri.PodSandboxMetadata{Name: id}}, Cgroup: root + "/" + id, NetNS: "/run/netns/" + id}
		for k := range 5 {
			id := fmt.Sprintf("%064d", 1000+5*i+k)
			ct := Container{Attributes: &cri.ContainerAttributes{Id: id}, Cgroup: sb.Cgroup + "/" + id, Layer: dir}
			if _, err := h.Create(ct.Cgroup); err != nil {
				t.Fatal(err)
			}
			sb.Containers = append(sb.Containers, ct)
		}
		all = append(all, sb)
	}
	return New(Config{Cgroups: h, Network: counters{}, LayerDir: dir, Log: slog.New(slog.DiscardHandler)}), all
}

func listAll(t testing.TB, c *Collector, all []Sandbox) {
	t.Helper()
	for _, sb := range all {
		for _, ct := range sb.Containers {
			if c.Container(ct) == nil {
				t.Fatal("a container is gone")
			}
		}
	}
}

// TestHundredContainersAreCheap holds a list over 100 containers against the 10 ms that it may take: the quickest of some, in
// time of the processor, for the machine may have other work.
func TestHundredContainersAreCheap(t *testing.T) {
	c, all := hundred(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	spent := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	quickest := time.Hour
	for range 30 {
		begin := spent()
		listAll(t, c, all)
		quickest = min(quickest, spent()-begin)
	}
	t.Logf("stats of 100 containers: %v", quickest)
	// An emulated machine's processor time tells nothing about the budget: what it emulates, and how busy its host is, differ too much.
	if most := 10 * time.Millisecond; harness.SlowFactor() == 1 && quickest > most {
		t.Errorf("stats of 100 containers take %v, want at most %v", quickest, most)
	}
}

// A sandbox that is asked for by Metrics while some of its containers have gone is told without them.
func TestMetricsOfWhatGoes(t *testing.T) {
	c, all := hundred(t)
	all[0].Containers[1].Cgroup += "/gone"
	all[1].Cgroup += "/gone"
	told, containers := 0, 0
	for m := range c.Metrics(t.Context(), all) {
		told, containers = told+1, containers+len(m.GetContainerMetrics())
	}
	if told != 19 || containers != 94 {
		t.Errorf("%d sandboxes with %d containers, want 19 with 94", told, containers)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range c.Metrics(ctx, all) {
		t.Error("a list goes on after its call has ended")
	}
}

func BenchmarkHundredContainers(b *testing.B) {
	c, all := hundred(b)
	b.Run("stats", func(b *testing.B) {
		for b.Loop() {
			listAll(b, c, all)
		}
	})
	b.Run("metrics", func(b *testing.B) {
		for b.Loop() {
			for range c.Metrics(b.Context(), all) {
			}
		}
	})
}
