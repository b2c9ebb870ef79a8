package cgroup

import (
	"testing"

	"github.com/containerd/errdefs"
)

// TestSetAllOrNothing: after a value that the kernel refuses, those that were written before it are what they were.
func TestSetAllOrNothing(t *testing.T) {
	h, root := detect(t)
	if _, err := h.Create(root); err != nil {
		t.Fatal(err)
	}
	if err := h.Set(root, Resources{CPUShares: new(uint64(512)), CPUQuota: new(int64(50000)), CPUPeriod: new(uint64(100000)), MemoryLimit: new(int64(64 << 20)), PidsLimit: new(int64(100))}); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"cpu.shares": "cpu", "cpu.cfs_quota_us": "cpu", "cpu.cfs_period_us": "cpu", "memory.limit_in_bytes": "memory", "pids.max": "pids"}
	if h.Mode() == V2 {
		files = map[string]string{"cpu.weight": "cpu", "cpu.max": "cpu", "memory.max": "memory", "pids.max": "pids"}
	}
	before := map[string]string{}
	for file, controller := range files {
		before[file] = read(t, h.controllers[controller], root, file)
	}
	err := h.Set(root, Resources{CPUShares: new(uint64(2)), CPUQuota: new(int64(20000)), CPUPeriod: new(uint64(50000)), MemoryLimit: new(int64(32 << 20)), PidsLimit: new(int64(7)), CPUs: "4000"})
	if !errdefs.IsInvalidArgument(err) {
		t.Errorf("a processor that is not there: %v, want InvalidArgument", err)
	}
	for file, controller := range files {
		if got := read(t, h.controllers[controller], root, file); got != before[file] {
			t.Errorf("%s is %q, and was %q", file, got, before[file])
		}
	}
}

// TestSetSwap: v1 holds memory and the sum of memory and swap against each other; v2 counts swap alone.
func TestSetSwap(t *testing.T) {
	h, root := detect(t)
	if !h.HasSwapLimit() {
		t.Skip("this kernel does not count swap") // an option of the kernel, which Set then refuses by its file's name
	}
	if _, err := h.Create(root); err != nil {
		t.Fatal(err)
	}
	// Down and up: in each direction v1 wants another order.
	for _, c := range []struct{ limit, sum int64 }{{64 << 20, 96 << 20}, {16 << 20, 16 << 20}, {128 << 20, 192 << 20}} {
		if err := h.Set(root, Resources{MemoryLimit: new(c.limit), MemorySwap: new(c.sum)}); err != nil {
			t.Fatal(err)
		}
		file, want := "memory.memsw.limit_in_bytes", c.sum
		if h.Mode() == V2 {
			file, want = "memory.swap.max", c.sum-c.limit
		}
		if got := read(t, h.controllers["memory"], root, file); got != orMax(want) {
			t.Errorf("%s is %s, want %d", file, got, want)
		}
	}
	if err := h.Set(root, Resources{MemoryLimit: new(int64(-1)), MemorySwap: new(int64(-1))}); err != nil {
		t.Error(err)
	}
	for _, bad := range []Resources{{MemorySwap: new(int64(1 << 20))}, {MemoryLimit: new(int64(2 << 20)), MemorySwap: new(int64(1 << 20))}} {
		if err := h.Set(root, bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v: %v, want InvalidArgument", bad, err)
		}
	}
}

func TestSetUnified(t *testing.T) {
	h, root := detect(t)
	if _, err := h.Create(root); err != nil {
		t.Fatal(err)
	}
	err := h.Set(root, Resources{Unified: map[string]string{"memory.high": "67108864"}})
	if h.Mode() != V2 {
		if !errdefs.IsFailedPrecondition(err) {
			t.Errorf("v1: %v, want FailedPrecondition", err)
		}
		return
	}
	if err != nil || read(t, h.controllers["memory"], root, "memory.high") != "67108864" {
		t.Errorf("%v, memory.high %s", err, read(t, h.controllers["memory"], root, "memory.high"))
	}
	// A list that was empty is so again.
	if err := h.Set(root, Resources{CPUs: "0", Unified: map[string]string{"memory.nonsense": "1"}}); err == nil {
		t.Error("a file that is not there was written")
	}
	if got := read(t, h.controllers["cpuset"], root, "cpuset.cpus"); got != "" {
		t.Errorf("cpuset.cpus is %q, and was empty", got)
	}
}
