package podstats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod.dev/monopod/internal/agent/podspec"
)

// snapshot collects once.
func (c *Collector) snapshot(ctx context.Context) (*Snapshot, error) {
	sandboxes, err := c.cfg.Runtime.ListPodSandbox(ctx, &criv1.ListPodSandboxRequest{Filter: &criv1.PodSandboxFilter{
		State: &criv1.PodSandboxStateValue{State: criv1.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return nil, fmt.Errorf("list all sandboxes: %w", err)
	}
	containers, err := c.cfg.Runtime.ListContainers(ctx, &criv1.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list all containers: %w", err)
	}
	used, err := c.used(ctx)
	if err != nil {
		return nil, err
	}
	s := assemble(sandboxes.Items, containers.Containers, used)
	s.At = time.Now()
	if s.Node, s.MemoryTotal, err = c.node(); err != nil {
		return nil, err
	}
	c.rate(s)
	return s, nil
}

// used is what the runtime tells of sandboxes and containers, by their ids.
type used struct {
	sandboxes  map[string]*criv1.LinuxPodSandboxStats
	containers map[string]*criv1.ContainerStats
}

// used asks for the stats of sandboxes, which have those of their containers. Some runtimes do not implement it, or fail all of it for one
// sandbox that is going: then those of containers are asked for.
func (c *Collector) used(ctx context.Context) (used, error) {
	u := used{map[string]*criv1.LinuxPodSandboxStats{}, map[string]*criv1.ContainerStats{}}
	add := func(all []*criv1.ContainerStats) {
		for _, ct := range all {
			u.containers[ct.GetAttributes().GetId()] = ct
		}
	}
	pods, err := c.cfg.Runtime.ListPodSandboxStats(ctx, &criv1.ListPodSandboxStatsRequest{})
	if err == nil {
		for _, p := range pods.Stats {
			if p.GetLinux() != nil {
				u.sandboxes[p.GetAttributes().GetId()] = p.Linux
				add(p.Linux.Containers)
			}
		}
		return u, nil
	}
	c.once("the container runtime tells nothing of pods as a whole: their containers are added up, and there is nothing of networks", err)
	all, err2 := c.cfg.Runtime.ListContainerStats(ctx, &criv1.ListContainerStatsRequest{})
	if err2 != nil {
		return u, errors.Join(fmt.Errorf("stats of sandboxes: %w", err), fmt.Errorf("stats of containers: %w", err2))
	}
	add(all.Stats)
	return u, nil
}

// assemble makes pods of what the runtime holds: of each the newest sandbox, with its running containers, of each name the newest.
func assemble(sandboxes []*criv1.PodSandbox, containers []*criv1.Container, u used) *Snapshot {
	s := &Snapshot{Sandboxes: len(sandboxes), Containers: map[string]int{}, IDs: map[Key]ID{}, Pods: []stats.PodStats{}}
	running := map[string][]*criv1.Container{}
	for _, ct := range containers {
		s.Containers[strings.ToLower(strings.TrimPrefix(ct.State.String(), "CONTAINER_"))]++
		if ct.State == criv1.ContainerState_CONTAINER_RUNNING {
			running[ct.PodSandboxId] = append(running[ct.PodSandboxId], ct)
		}
	}
	slices.SortFunc(sandboxes, func(a, b *criv1.PodSandbox) int { return int(b.CreatedAt - a.CreatedAt) })
	seen := map[types.UID]bool{}
	for _, sb := range sandboxes {
		ref, ok := podspec.RefOf(sb.Labels)
		if !ok || seen[ref.UID] {
			continue
		}
		seen[ref.UID] = true
		s.IDs[Key{UID: ref.UID}] = ID{ID: sb.Id}
		pod := stats.PodStats{
			PodRef: stats.PodReference{Name: ref.Name, Namespace: ref.Namespace, UID: string(ref.UID)}, StartTime: nanos(sb.CreatedAt),
			Containers: []stats.ContainerStats{},
		}
		mine := running[sb.Id]
		slices.SortFunc(mine, func(a, b *criv1.Container) int { return int(b.CreatedAt - a.CreatedAt) })
		for _, ct := range mine {
			key := Key{ref.UID, ct.GetMetadata().GetName()}
			if _, newer := s.IDs[key]; newer {
				continue
			}
			s.IDs[key] = ID{ct.Id, imageOf(ct)}
			of := u.containers[ct.Id]
			pod.Containers = append(pod.Containers, stats.ContainerStats{
				Name: key.Container, StartTime: nanos(ct.CreatedAt),
				CPU: cpuOf(of.GetCpu()), Memory: memoryOf(of.GetMemory()), IO: ioOf(of.GetIo()), Swap: swapOf(of.GetSwap()), Rootfs: layerOf(of.GetWritableLayer()),
			})
		}
		slices.SortFunc(pod.Containers, func(a, b stats.ContainerStats) int { return strings.Compare(a.Name, b.Name) })
		if of := u.sandboxes[sb.Id]; of != nil {
			pod.CPU, pod.Memory, pod.IO, pod.Network = cpuOf(of.Cpu), memoryOf(of.Memory), ioOf(of.Io), networkOf(of.Network)
			if n := of.GetProcess().GetProcessCount(); n != nil {
				pod.ProcessStats = &stats.ProcessStats{ProcessCount: number(n)}
			}
		}
		pod.Swap = swapSum(&pod)
		s.Pods = append(s.Pods, pod)
	}
	slices.SortFunc(s.Pods, func(a, b stats.PodStats) int {
		return strings.Compare(a.PodRef.Namespace+"/"+a.PodRef.Name, b.PodRef.Namespace+"/"+b.PodRef.Name)
	})
	return s
}

func imageOf(ct *criv1.Container) string {
	if name := ct.GetImage().GetUserSpecifiedImage(); name != "" {
		return name
	}
	return ct.GetImage().GetImage()
}

// layerOf is what a container has written. The file system is added when somebody wants it.
func layerOf(u *criv1.FilesystemUsage) *stats.FsStats {
	if u == nil {
		return nil
	}
	return &stats.FsStats{Time: nanos(u.Timestamp), UsedBytes: number(u.UsedBytes), InodesUsed: number(u.InodesUsed)}
}

// nodeKey and podsKey are under which the rates of the node and of all its pods are remembered: no container has such an id.
const nodeKey, podsKey = "/", "/pods"

// rate adds the rates of processor time to all that a snapshot tells of. The runtime's own stays where there is no other yet.
func (c *Collector) rate(s *Snapshot) {
	counted := map[string]*stats.CPUStats{nodeKey: s.Node.CPU}
	for i := range s.Node.SystemContainers {
		counted[podsKey+s.Node.SystemContainers[i].Name] = s.Node.SystemContainers[i].CPU
	}
	for i := range s.Pods {
		pod := &s.Pods[i]
		uid := types.UID(pod.PodRef.UID)
		counted[s.IDs[Key{UID: uid}].ID] = pod.CPU
		for k := range pod.Containers {
			counted[s.IDs[Key{uid, pod.Containers[k].Name}].ID] = pod.Containers[k].CPU
		}
	}
	samples := map[string]sample{}
	for id, cpu := range counted {
		if cpu != nil && cpu.UsageCoreNanoSeconds != nil {
			samples[id] = sample{cpu.Time.Time, *cpu.UsageCoreNanoSeconds}
		}
	}
	c.mu.Lock()
	c.rates = c.rates.next(samples)
	for id := range samples {
		if r := c.rates[id]; r.rated {
			counted[id].UsageNanoCores = known(r.rate)
		}
	}
	c.mu.Unlock()
	for i := range s.Pods {
		if s.Pods[i].CPU == nil { // now that the containers have their rates
			sum(&s.Pods[i])
		}
	}
}
