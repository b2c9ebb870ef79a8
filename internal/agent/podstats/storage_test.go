package podstats

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/agent/volumes/held"
	"monopod.dev/monopod/internal/host/quota"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/test/smallfs"
)

func TestStorage(t *testing.T) {
	pods, logs, outside := t.TempDir(), t.TempDir(), t.TempDir()
	write := func(size int, elements ...string) string {
		path := filepath.Join(elements...)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write(1<<20, pods, "u1", "volumes", "data", "sub", "file")
	if err := os.Link(file, filepath.Join(pods, "u1", "volumes", "data", "again")); err != nil {
		t.Fatal(err)
	}
	// What a container may leave: links out of its volume, to a file and to a directory.
	write(8<<20, outside, "large")
	for name, to := range map[string]string{"file": filepath.Join(outside, "large"), "dir": outside, "loop": "."} {
		if err := os.Symlink(to, filepath.Join(pods, "u1", "volumes", "data", name)); err != nil {
			t.Fatal(err)
		}
	}
	write(100, pods, "u1", "etc-hosts")
	write(64<<10, logs, "ns_p_u1", "a", "0.log")
	write(64<<10, logs, "ns_p_u1", "a", "1.log")
	write(1, pods, "u2", "volumes", "v", "x")
	write(1, logs, "not-a-pod", "x")

	s := newStorage(pods, logs, slog.New(slog.DiscardHandler))
	s.measure(t.Context())
	one := s.of("u1")
	if one == nil || len(one.Volumes) != 1 || len(one.Logs) != 1 {
		t.Fatalf("measured %+v", one)
	}
	v, log := one.Volumes[0], one.Logs["a"]
	if v.Name != "data" || v.Apart || v.Bytes < 1<<20 || v.Bytes > 2<<20 || v.Inodes != 6 {
		t.Errorf("volume %+v: want a file of a mebibyte once, two directories and three links", v)
	}
	if log.Bytes < 128<<10 || log.Inodes != 3 {
		t.Errorf("logs %+v", log)
	}
	if all := one.Disk(); all.Bytes != v.Bytes+log.Bytes+one.Other.Bytes || one.Other.Inodes < 2 || one.Other.Bytes >= 1<<20 {
		t.Errorf("all %+v, other %+v", all, one.Other)
	}
	if s.of("u2") == nil || s.of("u2").Logs["a"].Inodes != 0 {
		t.Errorf("a pod without logs: %+v", s.of("u2"))
	}

	// What lies deep is counted as well, and what is being removed is no pod's.
	deep := filepath.Join(pods, "u2", "volumes", "v")
	for range 300 {
		deep = filepath.Join(deep, "d")
	}
	write(1<<20, deep, "file")
	write(1, pods, tree.BinName, "volumes-1", "x")
	s.measure(t.Context())
	if v := s.of("u2").Volumes[0]; v.Bytes < 1<<20 || v.Inodes != 303 {
		t.Errorf("a deep volume: %+v", v)
	}
	if s.of(tree.BinName) != nil {
		t.Error("what is being removed is measured")
	}

	// One that is not reached in time keeps what was measured; one that is gone is forgotten.
	if err := os.RemoveAll(filepath.Join(pods, "u2")); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.measure(ended)
	if s.of("u1") == nil || s.of("u2") == nil {
		t.Error("what was measured is lost when there is no time")
	}
	s.measure(t.Context())
	if s.of("u1") == nil || s.of("u2") != nil {
		t.Error("a pod that is gone is remembered")
	}
}

// TestVolumesByQuota: what a volume takes that is held to its size is told by its quota, and counts as the pod's, on btrfs as well, where it is a subvolume. Who looks at each file finds the same.
func TestVolumesByQuota(t *testing.T) {
	for _, kind := range smallfs.QuotaKinds {
		t.Run(kind, func(t *testing.T) {
			pod := filepath.Join(smallfs.WithQuotas(t, kind), "u1")
			dir := filepath.Join(pod, "volumes", "data")
			if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
				t.Fatal(err)
			}
			if is, err := held.Make(pod, "data", dir, 0o777, 16<<20); err != nil || !is {
				t.Fatalf("held %v, %v", is, err)
			}
			f, err := os.Create(filepath.Join(dir, "file"))
			if err == nil {
				_, err = f.Write(bytes.Repeat([]byte("data"), 1<<20))
				err = errors.Join(err, f.Sync(), f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
			if kind == "btrfs" {
				unix.Sync() // its quotas count what is on the disk
			}
			for _, byQuota := range []bool{true, false} {
				one, err := measurePod(t.Context(), pod, "", byQuota)
				if err != nil || len(one.Volumes) != 1 {
					t.Fatalf("measured %+v, %v", one, err)
				}
				v := one.Volumes[0]
				if v.Apart || v.Bytes < 4<<20 || v.Bytes > 5<<20 || one.Disk().Bytes < v.Bytes {
					t.Errorf("by quota %v: %+v of %+v", byQuota, v, one.Disk())
				}
				if inodes := v.Inodes; inodes != 2 && (inodes != 0 || kind != "btrfs" || !byQuota) {
					t.Errorf("by quota %v: %d files", byQuota, inodes)
				}
			}
			if kind == "btrfs" {
				return
			}
			// What a pod has given to another project is found by who looks at each file: by it pods are evicted.
			hidden := filepath.Join(dir, "hidden")
			if err := errors.Join(os.Mkdir(hidden, 0o700), quota.SetProject(hidden, 5000), os.WriteFile(filepath.Join(hidden, "file"), bytes.Repeat([]byte("data"), 6<<20), 0o600)); err != nil {
				t.Fatal(err)
			}
			for byQuota, least := range map[bool]uint64{true: 4 << 20, false: 28 << 20} {
				one, err := measurePod(t.Context(), pod, "", byQuota)
				if err != nil || one.Volumes[0].Bytes < least || one.Volumes[0].Bytes > least+1<<20 {
					t.Errorf("by quota %v, beside what is hidden: %+v, %v", byQuota, one, err)
				}
			}
		})
	}
}
