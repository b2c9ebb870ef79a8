package podstats

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/test/crifake"
)

// bench is a runtime with a pod, and a collector of it.
type bench struct {
	*testing.T
	rt     *crifake.Runtime
	client *cri.Client
	c      *Collector
	dir    string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "mpst") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bench{T: t, rt: crifake.Start(t, filepath.Join(dir, "cri.sock")), dir: dir}
	if b.client, err = cri.Dial(cri.Config{Socket: b.rt.Socket, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.client.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	b.c = New(ctx, Config{
		NodeName: "node", Runtime: b.client, Images: b.client.Images, PodsDir: filepath.Join(dir, "pods"), LogsDir: filepath.Join(dir, "logs"), DiskDir: dir,
		PodsCgroup: func() (string, error) { return "/mp-test-no-such-cgroup", nil }, Log: slog.New(slog.DiscardHandler),
	})
	ended := make(chan struct{})
	go func() { defer close(ended); b.c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return b
}

// run makes a pod whose containers run.
func (b *bench) run(uid string, containers ...string) {
	b.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p-" + uid, UID: types.UID(uid)}}
	sandbox := podspec.Sandbox(podspec.SandboxInput{Pod: pod, LogDir: b.dir})
	s, err := b.client.RunPodSandbox(b.Context(), &criv1.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range containers {
		c, err := b.client.CreateContainer(b.Context(), &criv1.CreateContainerRequest{PodSandboxId: s.PodSandboxId, SandboxConfig: sandbox,
			Config: podspec.Container(podspec.ContainerInput{Pod: pod, Container: &v1.Container{Name: name, Image: "img"}})})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := b.client.StartContainer(b.Context(), &criv1.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
			b.Fatal(err)
		}
	}
}

// collected is a snapshot that was collected just now.
func (b *bench) collected() *Snapshot {
	b.Helper()
	s, err := b.c.snapshot(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func TestPods(t *testing.T) {
	b := newBench(t)
	b.run("u1", "a", "b")
	b.run("u2", "a")
	b.rt.Exit(b.rt.Running("b")[0], 0)
	s := b.collected()
	if len(s.Pods) != 2 || s.Sandboxes != 2 || s.Containers["running"] != 2 || s.Containers["exited"] != 1 {
		t.Fatalf("snapshot %+v", s)
	}
	p := s.Pods[0]
	if p.PodRef.Name != "p-u1" || p.PodRef.Namespace != "ns" || len(p.Containers) != 1 || p.Containers[0].Name != "a" || p.StartTime.IsZero() {
		t.Fatalf("pod %+v", p)
	}
	if ct := p.Containers[0]; *ct.Memory.WorkingSetBytes != 2<<20 || *p.Memory.WorkingSetBytes != 4<<20 || *ct.Swap.SwapUsageBytes != 0 || *p.Swap.SwapUsageBytes != 0 ||
		*p.ProcessStats.ProcessCount != 5 || *p.Network.RxBytes != 11 || p.Network.Interfaces[0].Name != "eth0" || *ct.Rootfs.UsedBytes != 4096 {
		t.Errorf("pod %+v, container %+v", p, ct)
	}
	n := s.Node
	if n.NodeName != "node" || *n.CPU.UsageCoreNanoSeconds == 0 || *n.Memory.WorkingSetBytes == 0 || n.StartTime.IsZero() || *n.Rlimit.NumOfRunningProcesses == 0 ||
		s.MemoryTotal == 0 || len(n.SystemContainers) != 0 {
		t.Errorf("node %+v", n)
	}
}

// TestRatesOfTwoCollections: all that has a counter of processor time has a rate once it was seen twice.
func TestRatesOfTwoCollections(t *testing.T) {
	b := newBench(t)
	b.run("u1", "a")
	first := b.collected()
	if first.Pods[0].CPU.UsageNanoCores != nil || first.Node.CPU.UsageNanoCores != nil {
		t.Error("there is a rate of one sample")
	}
	for deadline := time.Now().Add(time.Minute); ; {
		s := b.collected()
		pod, ct, node := s.Pods[0].CPU.UsageNanoCores, s.Pods[0].Containers[0].CPU.UsageNanoCores, s.Node.CPU.UsageNanoCores
		if pod != nil && ct != nil && node != nil {
			// The fake counts a tenth of a processor, and two for the pod.
			if *ct < 99e6 || *ct > 101e6 || *pod < 198e6 || *pod > 202e6 {
				t.Errorf("container %d, pod %d", *ct, *pod)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("there are no rates")
		}
	}
}

// TestWithoutStatsOfPods: some runtimes tell of containers only.
func TestWithoutStatsOfPods(t *testing.T) {
	b := newBench(t)
	b.run("u1", "a", "b")
	b.rt.Fail("ListPodSandboxStats", status.Error(codes.Unimplemented, "no such method"))
	p := b.collected().Pods[0]
	if len(p.Containers) != 2 || *p.Memory.WorkingSetBytes != 4<<20 || p.Network != nil ||
		*p.CPU.UsageCoreNanoSeconds != *p.Containers[0].CPU.UsageCoreNanoSeconds+*p.Containers[1].CPU.UsageCoreNanoSeconds {
		t.Errorf("pod %+v", p)
	}
	b.rt.Fail("ListContainerStats", status.Error(codes.Internal, "broken"))
	if _, err := b.c.snapshot(t.Context()); err == nil {
		t.Error("there is a snapshot without stats")
	}
}

// TestMetricsOfTheRuntime: there are some, or it says so.
func TestMetricsOfTheRuntime(t *testing.T) {
	b := newBench(t)
	b.run("u1", "a")
	if _, err := b.c.Metrics(t.Context()); status.Code(err) != codes.Unimplemented {
		t.Errorf("a runtime without metrics: %v", err)
	}
	b.rt.HasMetrics(true)
	m, err := b.c.Metrics(t.Context())
	if err != nil || len(m.Descriptors) != 2 || len(m.Pods) != 1 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestSummary(t *testing.T) {
	b := newBench(t)
	b.run("u1", "a")
	volume := filepath.Join(b.dir, "pods", "u1", "volumes", "data")
	if err := os.MkdirAll(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(volume, "f"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	b.c.storage.measure(t.Context())
	s, err := b.c.Summary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := s.Pods[0]
	if len(p.VolumeStats) != 1 || p.VolumeStats[0].Name != "data" || *p.VolumeStats[0].UsedBytes < 1<<20 || *p.VolumeStats[0].CapacityBytes == 0 {
		t.Fatalf("volumes %+v", p.VolumeStats)
	}
	if *p.EphemeralStorage.UsedBytes < 1<<20+4096 || *p.EphemeralStorage.CapacityBytes != *s.Node.Fs.CapacityBytes || *s.Node.Runtime.ImageFs.CapacityBytes == 0 {
		t.Errorf("ephemeral storage %+v, node %+v", p.EphemeralStorage, s.Node)
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1"}}
	files, err := b.c.Files(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := b.c.Layers(t.Context(), pod.UID)
	if err != nil || len(layers) != 1 || files.Disk().Bytes+layers["a"] != *p.EphemeralStorage.UsedBytes {
		t.Errorf("files %+v, layers %v, %v; together not %d", files, layers, err, *p.EphemeralStorage.UsedBytes)
	}
	pod.UID = "none"
	if files, err := b.c.Files(t.Context(), pod); err != nil || files.Disk().Bytes != 0 {
		t.Errorf("a pod without files: %+v, %v", files, err)
	}
	small, err := b.c.CPUAndMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if q := small.Pods[0]; q.Network != nil || q.VolumeStats != nil || q.Containers[0].Rootfs != nil || small.Node.Fs != nil || *q.Memory.UsageBytes != *p.Memory.UsageBytes {
		t.Errorf("of processors and memory: %+v", small)
	}
}

// TestSharedCollection: those who ask at the same time have one answer, also when who asked first has gone.
func TestSharedCollection(t *testing.T) {
	enter, leave := make(chan struct{}), make(chan error)
	made := 0
	s := &shared[int]{base: t.Context(), fresh: time.Hour, patience: time.Minute, make: func(context.Context) (int, error) {
		made++
		close(enter)
		return made, <-leave
	}}
	impatient, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() { _, err := s.get(impatient); gone <- err }()
	<-enter
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("who goes is told %v", err)
	}
	ask := func(n int) (all []int) {
		var wg sync.WaitGroup
		answers := make(chan int, n)
		for range n {
			wg.Go(func() {
				v, err := s.get(t.Context())
				if err != nil {
					v = -1
				}
				answers <- v
			})
		}
		go func() { wg.Wait(); close(answers) }()
		for v := range answers {
			all = append(all, v)
		}
		return all
	}
	go func() { leave <- nil }()
	for _, v := range append(ask(10), ask(1)...) {
		if v != 1 {
			t.Errorf("answer %d", v)
		}
	}
	// An error is for those who wait, and nobody else.
	s.fresh, enter = 0, make(chan struct{})
	go func() { leave <- errors.New("no") }()
	if all := ask(1); all[0] != -1 {
		t.Errorf("answers %v", all)
	}
	enter = make(chan struct{})
	go func() { leave <- nil }()
	if all := ask(1); all[0] != 3 {
		t.Errorf("answers %v", all)
	}
}
