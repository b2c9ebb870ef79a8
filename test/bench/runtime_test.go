package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// How many pods the figures of memory and of load are about, and how many are made at once.
const (
	idlePods = 50
	manyPods = 300
	// statsPods are the pods, with a container each, of which the statistics are listed.
	statsPods = 100
	// warmUps are pods that do not count: what runs for the first time is read in.
	warmUps = 10
	workers = 8
	burst   = 80
)

// BenchmarkRuntimes measures Monopod's runtime beside Debian's containerd, in turns, and prints the ratios.
func BenchmarkRuntimes(b *testing.B) {
	peers := []*peer{startMonopod(b), startContainerd(b)}
	figures := map[string]sample{}
	rows := []row{}
	row1 := func(name, unit string, measure func(p *peer) float64) {
		r := row{name: name, unit: unit}
		for _, p := range peers {
			r.values = append(r.values, measure(p))
		}
		rows = append(rows, r)
	}
	row1("runtime idle, before its first pod, PSS", "kB", func(p *peer) float64 { return float64(p.pss(b)) })
	for _, p := range peers {
		figures[p.name] = sample{}
		p.round(b, sample{}) // what is done once only
	}
	for b.Loop() {
		for _, p := range peers {
			p.round(b, figures[p.name])
		}
	}
	for _, name := range []string{"pod up", "run sandbox", "create", "start", "exec sync", "pod down"} {
		row1(name+", p50", "ms", func(p *peer) float64 { return quantile(figures[p.name][name], 0.5) })
		row1(name+", p90", "ms", func(p *peer) float64 { return quantile(figures[p.name][name], 0.9) })
	}
	row1(fmt.Sprintf("pods up a second, %d at once", workers), "1/s", func(p *peer) float64 { return p.rate(b) })
	row1(fmt.Sprintf("memory of one more idle pod, at %d, PSS", idlePods), "kB", func(p *peer) float64 { return p.density(b) })
	b.StopTimer()
	table(rows, peers)
	b.ReportMetric(quantile(figures["monopod"]["pod up"], 0.5), "pod-up-ms")
	b.ReportMetric(0, "ns/op") // a mean that says nothing
}

// settle is how long the kernel gets to be done with the cgroups of a pod that was removed: it takes memory cgroups apart in the background, in
// a time that grows with the file systems that are mounted, and makes nobody a cgroup meanwhile.
const settle = 100 * time.Millisecond

// BenchmarkManyPods compares a pod up on an empty node with one beside 300 idle pods: of one by itself, and of one that comes right after
// the removal of another. The node is empty before and after, and its figures are those of both times, so that a machine that gets
// slower or faster meanwhile does not count.
func BenchmarkManyPods(b *testing.B) {
	p := startMonopod(b)
	for range warmUps {
		p.round(b, sample{})
	}
	empty, full := [2]sample{{}, {}}, [2]sample{{}, {}}
	measure := func(s [2]sample) {
		time.Sleep(settle) //nolint:forbidigo // a machine that does nothing is what is measured on
		p.round(b, s[0])
		p.round(b, s[1])
	}
	rounds := 0
	for b.Loop() {
		measure(empty)
		rounds++
	}
	b.StopTimer()
	for range statsPods {
		p.up(b, sample{})
	}
	wall, cpu := p.listStats(b)
	fmt.Printf("ListContainerStats of %d containers: p50 %.1f ms, %.1f ms of a processor\n", statsPods, wall, cpu)
	b.ReportMetric(wall, "stats-ms")
	b.ReportMetric(cpu, "stats-cpu-ms")
	for range manyPods - statsPods {
		p.up(b, sample{})
	}
	for range 2 * rounds {
		measure(full)
	}
	p.removeAll(b)
	for range rounds {
		measure(empty)
	}
	for i, when := range []string{"by itself", "right after a removal"} {
		for _, name := range []string{"pod up", "run sandbox", "create", "start", "pod down"} {
			before, after := quantile(empty[i][name], 0.5), quantile(full[i][name], 0.5)
			fmt.Printf("%-11s %-21s p50: empty node %5.1f ms, beside %d pods %5.1f ms, ratio %.2f\n", name, when, before, manyPods, after, after/before)
		}
	}
	b.ReportMetric(quantile(full[0]["pod up"], 0.5)/quantile(empty[0]["pod up"], 0.5), "ratio")
	b.ReportMetric(0, "ns/op")
}

// listStats lists the statistics of all containers, and tells how long that takes (the median) and what it costs the runtime, in ms.
func (p *peer) listStats(b *testing.B) (wall, cpu float64) {
	b.Helper()
	const calls = 100
	s := sample{}
	var before time.Duration
	for i := range calls + 1 {
		if i == 1 { // the first call is that of a runtime which nobody has asked before
			before = p.cpu(b)
			clear(s)
		}
		must(b, s.time("stats", func() error {
			resp, err := p.rt.ListContainerStats(context.Background(), &cri.ListContainerStatsRequest{})
			if err == nil && len(resp.GetStats()) != statsPods {
				err = fmt.Errorf("%d containers are listed, want %d", len(resp.GetStats()), statsPods)
			}
			return err
		}))
	}
	return quantile(s["stats"], 0.5), float64((p.cpu(b) - before).Microseconds()) / 1000 / calls
}

// cpu is the time that the runtime's processes have had a processor.
func (p *peer) cpu(b *testing.B) (sum time.Duration) {
	b.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(b, err)
	for _, file := range all {
		cmdline, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(cmdline), p.mark) {
			continue // it has ended, or is somebody else's
		}
		tasks, err := filepath.Glob(filepath.Join(filepath.Dir(file), "task/*/schedstat"))
		must(b, err)
		for _, task := range tasks {
			raw, err := os.ReadFile(task)
			if err != nil {
				continue // the thread has ended
			}
			var ran int64 // nanoseconds
			if _, err := fmt.Sscan(string(raw), &ran); err == nil {
				sum += time.Duration(ran)
			}
		}
	}
	return sum
}

type row struct {
	name, unit string
	values     []float64
}

func table(rows []row, peers []*peer) {
	fmt.Printf("\n%-42s %12s %12s  %s\n", "", peers[0].name, peers[1].name, "times")
	for _, r := range rows {
		better := r.values[1] / r.values[0]
		if r.unit == "1/s" {
			better = r.values[0] / r.values[1]
		}
		fmt.Printf("%-42s %9.1f %-3s %8.1f %-3s %6.1f\n", r.name, r.values[0], r.unit, r.values[1], r.unit, better)
	}
}

// quantile is in milliseconds.
func quantile(all []time.Duration, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return float64(all[min(len(all)-1, int(q*float64(len(all))))].Microseconds()) / 1000
}

// pod is one pod with a container that sleeps.
type pod struct{ sandbox, container string }

// round is one pod's life.
func (p *peer) round(b *testing.B, s sample) {
	b.Helper()
	made := p.up(b, s)
	must(b, s.time("exec sync", func() error {
		_, err := p.rt.ExecSync(context.Background(), &cri.ExecSyncRequest{ContainerId: made.container, Cmd: []string{"true"}, Timeout: 10})
		return err
	}))
	p.down(b, s, made)
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (p *peer) up(b *testing.B, s sample) pod {
	b.Helper()
	p.runs++
	made, err := p.tryUp(s, p.runs)
	must(b, err)
	return made
}

// tryUp makes the pod of that number.
func (p *peer) tryUp(s sample, number int) (made pod, err error) {
	ctx := context.Background()
	namespaces := &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
	id := fmt.Sprint("bench-", number)
	cfg := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: id, Namespace: "bench", Uid: id}, Hostname: "bench", LogDirectory: filepath.Join(p.dir, "pods", id),
		Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: namespaces}},
	}
	ctr := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: image}, Command: []string{"sleep", "3600"}, LogPath: "c.log",
		Linux: &cri.LinuxContainerConfig{
			Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, CpuShares: 128},
			SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: namespaces,
				Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}}},
	}
	err = s.time("pod up", func() error {
		if err := s.time("run sandbox", func() error {
			run, err := p.rt.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: cfg})
			made.sandbox = run.GetPodSandboxId()
			return err
		}); err != nil {
			return err
		}
		if err := s.time("create", func() error {
			created, err := p.rt.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: made.sandbox, Config: ctr, SandboxConfig: cfg})
			made.container = created.GetContainerId()
			return err
		}); err != nil {
			return err
		}
		return s.time("start", func() error {
			_, err := p.rt.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: made.container})
			return err
		})
	})
	return made, err
}

func (p *peer) down(b *testing.B, s sample, made pod) {
	b.Helper()
	ctx := context.Background()
	must(b, s.time("pod down", func() error {
		if _, err := p.rt.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: made.container}); err != nil {
			return err
		}
		if _, err := p.rt.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: made.container}); err != nil {
			return err
		}
		if _, err := p.rt.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: made.sandbox}); err != nil {
			return err
		}
		_, err := p.rt.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: made.sandbox})
		return err
	}))
}

// rate is how many pods come up in a second when several are asked for at once.
func (p *peer) rate(b *testing.B) float64 {
	b.Helper()
	numbers := make(chan int, burst)
	for range burst {
		p.runs++
		numbers <- p.runs
	}
	close(numbers)
	begin := time.Now()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for n := range numbers {
				if _, err := p.tryUp(sample{}, n); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	p.removeAll(b)
	return burst / took.Seconds()
}

// density is what one more idle pod costs of memory, in kB.
func (p *peer) density(b *testing.B) float64 {
	b.Helper()
	before := p.pss(b)
	for range idlePods {
		p.up(b, sample{})
	}
	after := p.pss(b)
	p.removeAll(b)
	return float64(after-before) / idlePods
}
