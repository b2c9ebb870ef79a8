package podstats

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod.dev/monopod/internal/agent/volumes/claims"
	"monopod.dev/monopod/internal/host/mount"
)

// TestClaims: what a claim stands for is told of as the claim's, and is not the pod's ephemeral storage, on whichever disk it is.
func TestClaims(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("this test mounts: run it as root")
	}
	dir := t.TempDir()
	pods, data, alone := filepath.Join(dir, "pods"), filepath.Join(dir, "data"), filepath.Join(dir, "alone")
	t.Cleanup(func() {
		if err := errors.Join(mount.UnmountBelow(pods), mount.UnmountBelow(alone)); err != nil {
			t.Error(err)
		}
	})
	do := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	do(os.MkdirAll(data, 0o755), os.Mkdir(alone, 0o755), mount.Tmpfs(alone, mount.TmpfsOptions{Size: 4 << 20, Inodes: 100}))
	for _, d := range []string{data, alone} {
		do(os.WriteFile(filepath.Join(d, "file"), make([]byte, 1<<20), 0o600))
	}
	put := func(uid, name, path string, mounted bool) {
		do(os.MkdirAll(filepath.Join(pods, uid, "volumes"), 0o755))
		r := claims.Record{Namespace: "ns", Claim: "claim-" + filepath.Base(path), Source: claims.Local, Path: path, Mounted: mounted, VolumeUID: types.UID("uid-" + filepath.Base(path))}
		do(claims.Write(filepath.Join(pods, uid), name, r))
		if mounted {
			at := filepath.Join(pods, uid, "volumes", name)
			do(os.Mkdir(at, 0o755), unix.Mount(path, at, "", unix.MS_BIND, ""))
		}
	}
	put("one", "a", data, true)
	put("one", "b", alone, true)
	put("one", "c", "/of/the/host", false)
	put("two", "a", data, true)

	c := &Collector{cfg: Config{PodsDir: pods, DiskDir: dir}, storage: newStorage(pods, filepath.Join(dir, "logs"), slog.New(slog.DiscardHandler))}
	c.storage.measure(t.Context())
	c.storage.claimed.measure(t.Context(), pods, c.storage.records())

	pod := stats.PodStats{PodRef: stats.PodReference{UID: "one"}}
	c.addStorage(&pod, disks{}, nil)
	if used := *pod.EphemeralStorage.UsedBytes; used >= 1<<20 {
		t.Errorf("the pod takes %d bytes of the node's disk", used)
	}
	if len(pod.VolumeStats) != 2 {
		t.Fatalf("volumes: %+v", pod.VolumeStats)
	}
	a, b := pod.VolumeStats[0], pod.VolumeStats[1]
	if a.Name != "a" || a.PVCRef == nil || *a.PVCRef != (stats.PVCReference{Namespace: "ns", Name: "claim-data"}) || *a.UsedBytes < 1<<20 || *a.UsedBytes > 2<<20 || *a.InodesUsed != 2 {
		t.Errorf("a directory on a disk: %+v of %+v", a.FsStats, a.PVCRef)
	}
	if b.Name != "b" || *b.CapacityBytes != 4<<20 || *b.UsedBytes != 1<<20 || *b.AvailableBytes != 3<<20 || *b.Inodes != 100 || *b.InodesUsed != 2 || *b.InodesFree != 98 {
		t.Errorf("a file system of its own: %+v", b.FsStats)
	}
	if all := c.Claims(); len(all) != 2 {
		t.Errorf("claims: %+v", all)
	}
	files, err := measurePod(t.Context(), filepath.Join(pods, "one"), "", true)
	if err != nil || len(files.Volumes) != 0 {
		t.Errorf("volumes of the pod's own: %+v, %v", files, err)
	}

	// What is mounted in a pod and is on no record is not the pod's either, though it is on the same disk.
	do(os.RemoveAll(filepath.Join(pods, "one", "claims")))
	files, err = measurePod(t.Context(), filepath.Join(pods, "one"), "", true)
	if err != nil || len(files.Volumes) != 2 || files.Disk().Bytes >= 1<<20 {
		t.Errorf("on no record: %+v, %v", files, err)
	}

	// One that does not answer is asked once.
	c.storage.claimed.busy["uid-data"] = true
	if _, err := c.storage.claimed.one(t.Context(), filepath.Join(pods, "two/volumes/a"), claims.Record{VolumeUID: "uid-data"}); err == nil {
		t.Error("a silent one is asked again")
	}
	// And no more servers than so many, but for the node's own disks.
	for i := range silentMost {
		c.storage.claimed.busy[types.UID(fmt.Sprint("silent", i))] = true
	}
	at := filepath.Join(pods, "one/volumes/b")
	if _, err := c.storage.claimed.one(t.Context(), at, claims.Record{VolumeUID: "share", Source: claims.NFS, Path: "server:/share"}); err == nil || c.storage.claimed.busy["share"] {
		t.Errorf("one server more is asked: %v", err)
	}
	if _, err := c.storage.claimed.one(t.Context(), at, claims.Record{VolumeUID: "uid-alone", Source: claims.Local, Path: alone}); err != nil {
		t.Error(err)
	}
}
