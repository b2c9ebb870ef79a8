package podstats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod.dev/monopod/internal/agent/podspec"
)

// CPUAndMemory is the summary of processors, memory and swap alone.
func (c *Collector) CPUAndMemory(ctx context.Context) (*stats.Summary, error) {
	s, err := c.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	slim := func(all []stats.ContainerStats) []stats.ContainerStats {
		out := make([]stats.ContainerStats, 0, len(all))
		for _, ct := range all {
			out = append(out, stats.ContainerStats{Name: ct.Name, StartTime: ct.StartTime, CPU: ct.CPU, Memory: ct.Memory, Swap: ct.Swap})
		}
		return out
	}
	out := &stats.Summary{
		Node: stats.NodeStats{
			NodeName: s.Node.NodeName, StartTime: s.Node.StartTime, CPU: s.Node.CPU, Memory: s.Node.Memory, Swap: s.Node.Swap,
			SystemContainers: slim(s.Node.SystemContainers),
		},
		Pods: make([]stats.PodStats, 0, len(s.Pods)),
	}
	for _, p := range s.Pods {
		out.Pods = append(out.Pods, stats.PodStats{
			PodRef: p.PodRef, StartTime: p.StartTime, CPU: p.CPU, Memory: p.Memory, Swap: p.Swap, Containers: slim(p.Containers),
		})
	}
	return out, nil
}

// Summary is all that is known of the node and its pods. Who asks for it has volumes and logs measured, which the next summary has.
func (c *Collector) Summary(ctx context.Context) (*stats.Summary, error) {
	s, err := c.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	runtime, err := c.imageFS.get(ctx)
	if err != nil {
		c.once("the file systems of images and containers are not told of", err)
		runtime = &stats.RuntimeStats{}
	}
	c.storage.want()
	disks := disks{}
	out := &stats.Summary{Node: s.Node, Pods: make([]stats.PodStats, 0, len(s.Pods))}
	out.Node.Fs, out.Node.Runtime = disks.of(c.cfg.DiskDir), runtime
	for _, p := range s.Pods {
		c.addStorage(&p, disks, runtime.ContainerFs)
		out.Pods = append(out.Pods, p)
	}
	return out, nil
}

// runtimeStats asks for the file systems of images and of writable layers. A runtime that names no other one has both on one.
func (c *Collector) runtimeStats(ctx context.Context) (*stats.RuntimeStats, error) {
	info, err := c.cfg.Images.ImageFsInfo(ctx, &criv1.ImageFsInfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("CRI ImageFsInfo: %w", err)
	}
	disks := disks{}
	of := func(all []*criv1.FilesystemUsage) *stats.FsStats {
		if len(all) == 0 {
			return nil
		}
		return disks.with(layerOf(all[0]), all[0].GetFsId().GetMountpoint())
	}
	r := &stats.RuntimeStats{ImageFs: of(info.ImageFilesystems), ContainerFs: of(info.ContainerFilesystems)}
	if r.ContainerFs == nil {
		r.ContainerFs = r.ImageFs
	}
	return r, nil
}

// addStorage adds what was measured of a pod's volumes and logs, and the sum of its ephemeral storage. containers is the file system of writable
// layers; nil: unknown. The pod is a copy, its containers are copied.
func (c *Collector) addStorage(pod *stats.PodStats, disks disks, containers *stats.FsStats) {
	measured := c.storage.of(pod.PodRef.UID)
	pod.Containers = slices.Clone(pod.Containers)
	layers := Usage{}
	for i := range pod.Containers {
		ct := &pod.Containers[i]
		if ct.Rootfs != nil {
			rootfs := *ct.Rootfs
			if containers != nil {
				rootfs.CapacityBytes, rootfs.AvailableBytes = containers.CapacityBytes, containers.AvailableBytes
				rootfs.Inodes, rootfs.InodesFree = containers.Inodes, containers.InodesFree
			}
			layers.add(&rootfs)
			ct.Rootfs = &rootfs
		}
		if measured != nil {
			if logs, ok := measured.Logs[ct.Name]; ok {
				ct.Logs = disks.with(logs.stats(), c.cfg.LogsDir)
			}
		}
	}
	if measured == nil {
		return
	}
	for _, v := range measured.Volumes {
		path := c.cfg.PodsDir
		if v.Apart {
			path = filepath.Join(c.cfg.PodsDir, pod.PodRef.UID, "volumes", v.Name)
		}
		if fs := disks.with(v.stats(), path); fs != nil {
			pod.VolumeStats = append(pod.VolumeStats, stats.VolumeStats{Name: v.Name, FsStats: *fs})
		}
	}
	pod.VolumeStats = append(pod.VolumeStats, c.storage.claimed.stats(measured.claims)...)
	all := measured.Disk()
	all.Bytes, all.Inodes = all.Bytes+layers.Bytes, all.Inodes+layers.Inodes
	pod.EphemeralStorage = disks.with(all.stats(), c.cfg.DiskDir)
}

// Files measures what a pod's volumes and logs take, now, and by looking at each file.
func (c *Collector) Files(ctx context.Context, pod *v1.Pod) (*Storage, error) {
	ref := podspec.Ref{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	logs := filepath.Join(c.cfg.LogsDir, podspec.LogDir(ref))
	measured, err := measurePod(ctx, filepath.Join(c.cfg.PodsDir, string(ref.UID)), logs, false)
	if errors.Is(err, fs.ErrNotExist) { // it has none yet, or no more
		return &Storage{At: time.Now()}, nil
	}
	return measured, err
}

// Layers are the sizes in bytes of the writable layers of a pod's containers, by name, as the runtime has measured them last.
func (c *Collector) Layers(ctx context.Context, uid types.UID) (map[string]uint64, error) {
	s, err := c.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	layers := map[string]uint64{}
	for i := range s.Pods {
		if s.Pods[i].PodRef.UID != string(uid) {
			continue
		}
		for _, ct := range s.Pods[i].Containers {
			if ct.Rootfs != nil && ct.Rootfs.UsedBytes != nil {
				layers[ct.Name] = *ct.Rootfs.UsedBytes
			}
		}
	}
	return layers, nil
}

// add adds what is known of a file system's use.
func (u *Usage) add(fs *stats.FsStats) {
	if fs != nil && fs.UsedBytes != nil {
		u.Bytes += *fs.UsedBytes
	}
	if fs != nil && fs.InodesUsed != nil {
		u.Inodes += *fs.InodesUsed
	}
}

func (u Usage) stats() *stats.FsStats {
	fs := &stats.FsStats{Time: metav1.NewTime(u.At), UsedBytes: known(u.Bytes)}
	if u.Inodes > 0 {
		fs.InodesUsed = known(u.Inodes)
	}
	return fs
}
