package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// A process that works and takes memory shows in its cgroup's stats and in its parent's.
func TestStats(t *testing.T) {
	h, root := detect(t)
	path := root + "/pod/c1"
	if _, err := h.Create(path); err != nil {
		t.Fatal(err)
	}
	if err := h.Set(path, Resources{CPUShares: new(uint64(512)), CPUQuota: new(int64(50000)), CPUPeriod: new(uint64(100000)),
		MemoryLimit: new(int64(64 << 20)), PidsLimit: new(int64(100))}); err != nil {
		t.Fatal(err)
	}
	// The gate is opened when the shell is in its cgroup, where its children are born.
	cmd := exec.Command("sh", "-c", `read gate; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; head -c 8000000 /dev/zero | tail -c 8000000 >/dev/null
		sleep 100 & echo ready; read end`)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pids, _ := h.Processes(path)
		for _, pid := range pids {
			if p, err := os.FindProcess(pid); err == nil {
				p.Kill()
			}
		}
		cmd.Wait()
	})
	join(t, h, path, cmd.Process.Pid)
	begin := time.Now()
	fmt.Fprintln(stdin, "go")
	if _, err := stdout.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}

	// The kernel counts a period of the quota when it is over, which may be after the shell has done its work.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if s, err := h.Stats(path, Full); err == nil && s.CPU != nil && s.CPU.Periods > 0 || time.Now().After(deadline) {
			break
		}
	}
	for _, p := range []string{path, root + "/pod"} {
		s, err := h.Stats(p, Full)
		// What the kernel has counted of a group's memory comes to the groups above when it has become much, or every two seconds.
		for deadline := time.Now().Add(time.Minute); err == nil && s.Memory != nil && s.Memory.PageFaults < 100 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			s, err = h.Stats(p, Full)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: cpu %+v, memory %+v, swap %+v, pressure %+v, pids %+v, limits %+v, io %+v", p, s.CPU, s.Memory, s.Swap, s.CPUPressure, s.PIDs, s.Limits, s.IO)
		if s.CPU == nil || s.Memory == nil || s.PIDs == nil || s.Limits == nil {
			t.Fatalf("%s: a part is missing: %+v", p, s)
		}
		if spent := time.Duration(s.CPU.Usage); spent < time.Millisecond || spent > 2*time.Since(begin) || !s.CPU.HasTimes || s.CPU.User == 0 {
			t.Errorf("%s: cpu %v (%+v) in %v", p, spent, s.CPU, time.Since(begin))
		}
		if s.CPU.At.Before(begin) || s.Memory.At.Before(s.CPU.At) || s.Memory.At.After(time.Now()) {
			t.Errorf("%s: times %v, %v", p, s.CPU.At, s.Memory.At)
		}
		m := s.Memory
		if m.Usage < 50_000 || m.Usage > 64<<20 || m.WorkingSet() > m.Usage || m.PageFaults < 100 || m.MajorPageFaults > m.PageFaults {
			t.Errorf("%s: memory %+v", p, m)
		}
		if m.HasMaxUsage && m.MaxUsage < 2_000_000 {
			t.Errorf("%s: at most %d bytes were used, but tail has held 8 MB", p, m.MaxUsage)
		}
		if s.PIDs.Tasks != 2 {
			t.Errorf("%s: %d tasks, want 2", p, s.PIDs.Tasks)
		}
		if n, err := h.CountProcesses(p); err != nil || n != 2 {
			t.Errorf("%s: %d processes, %v, want 2", p, n, err)
		}
		if pids, err := h.PIDs(p); err != nil || len(pids) != 2 || !slices.Contains(pids, cmd.Process.Pid) {
			t.Errorf("%s: processes %v, %v, want two with %d", p, pids, err, cmd.Process.Pid)
		}
		if h.Mode() == V2 && (s.CPUPressure == nil || s.MemoryPressure == nil || s.IOPressure == nil || s.IOPressureAt.Before(begin)) && exists("/proc/pressure/cpu") {
			t.Errorf("%s: no pressure: %+v", p, s)
		}
		if p != path {
			if m.Limit != Unlimited || s.PIDs.Limit != Unlimited || s.Limits.Quota != Unlimited {
				t.Errorf("limits of the parent, which has none: %+v %+v %+v", m, s.PIDs, s.Limits)
			}
			continue
		}
		if m.Limit != 64<<20 || s.PIDs.Limit != 100 || s.Limits.Quota != 50000 || s.Limits.Period != 100000 || s.Limits.Shares < 500 || s.Limits.Shares > 512 {
			t.Errorf("limits %d, %+v, %+v", m.Limit, s.PIDs, s.Limits)
		}
		if !s.CPU.HasBandwidth || s.CPU.Periods == 0 {
			t.Errorf("no periods: %+v", s.CPU)
		}
	}
	basic, err := h.Stats(path, Basic)
	if err != nil || basic.CPU == nil || basic.Memory == nil || basic.PIDs != nil || basic.Limits != nil {
		t.Errorf("basic stats %+v, %v", basic, err)
	}
}

func TestStatsOfNothing(t *testing.T) {
	h, root := detect(t)
	if _, err := h.Stats(root+"/missing", Basic); !errdefs.IsNotFound(err) {
		t.Errorf("stats of a missing cgroup: %v, want NotFound", err)
	}
	if _, err := h.Stats("relative", Basic); !errdefs.IsInvalidArgument(err) {
		t.Errorf("stats of a relative path: %v, want InvalidArgument", err)
	}
	if n, err := h.CountProcesses(root + "/missing"); n != 0 || err != nil {
		t.Errorf("processes of a missing cgroup: %d, %v", n, err)
	}
}

// A cgroup that comes and goes while it is read is there or not, and never an error.
func TestStatsWhileRemoved(t *testing.T) {
	h, root := detect(t)
	path := root + "/c"
	var wg sync.WaitGroup
	end := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
			}
			if _, err := h.Create(path); err != nil {
				t.Error(err)
			}
			if err := h.Remove(path); err != nil {
				t.Error(err)
			}
		}
	})
	seen := map[bool]int{}
	for range 300 {
		s, err := h.Stats(path, Full)
		if err != nil && !errdefs.IsNotFound(err) {
			t.Errorf("stats: %v", err)
		}
		if err == nil && (s.CPU == nil || s.Memory == nil && h.Mode() != V2) {
			t.Errorf("half of the stats: %+v", s)
		}
		seen[err == nil]++
		if _, err := h.CountProcesses(path); err != nil {
			t.Errorf("processes: %v", err)
		}
	}
	close(end)
	wg.Wait()
	t.Logf("there %d times, gone %d times", seen[true], seen[false])
}

// BenchmarkStats100 reads what a list over 100 containers needs, from 100 real cgroups.
func BenchmarkStats100(b *testing.B) {
	h, err := Detect()
	if err != nil {
		b.Fatal(err)
	}
	root := fmt.Sprintf("/mp-test-cg-stats-%d", os.Getpid())
	defer h.RemoveTree(root)
	for i := range 100 {
		if _, err := h.Create(fmt.Sprintf("%s/pod%d/c", root, i)); err != nil {
			b.Fatal(err)
		}
	}
	for name, detail := range map[string]Detail{"basic": Basic, "full": Full} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				for i := range 100 {
					if _, err := h.Stats(fmt.Sprintf("%s/pod%d/c", root, i), detail); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
