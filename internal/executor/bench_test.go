package executor_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/ids"
)

// TestFigures prints what users compare: how long a container takes, and what the executor costs. It holds the budget of
// memory; times depend on the machine too much to be held.
func TestFigures(t *testing.T) {
	n := newNode(t)
	const runs = 30
	var create, start, total []time.Duration
	for i := range runs {
		req := n.bundle(ids.ContainerID(fmt.Sprint("c", i)), nil, "sleep", "1000")
		begin := time.Now()
		if _, err := n.c.Create(n.ctx(), req); err != nil {
			t.Fatal(err)
		}
		created := time.Now()
		if _, err := n.c.Start(n.ctx(), req.ID); err != nil {
			t.Fatal(err)
		}
		create, start, total = append(create, created.Sub(begin)), append(start, time.Since(created)), append(total, time.Since(begin))
		n.kill(req.ID, unix.SIGKILL)
		n.exit(req.ID)
		if err := n.c.Delete(n.ctx(), req.ID); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("create p50 %s, start p50 %s, both p50 %s (max %s), of %d runs", p50(create), p50(start), p50(total), slices.Max(total), runs)
	h := n.hello()
	// Whatever is made for a container is closed with it; the rest is what the garbage collector has not got to yet.
	if k := openFDs(t, h.KeeperPID); k > 20 {
		t.Errorf("the keeper has %d descriptors open", k)
	}
	if w := openFDs(t, h.WorkerPID); w > 2*runs {
		t.Errorf("the worker has %d descriptors open", w)
	}
	const budget = 15 << 10
	zygote := zygoteOf(t, h.WorkerPID)
	keeper, worker := pss(t, h.KeeperPID), pss(t, h.WorkerPID)+pss(t, zygote)
	for end := time.Now().Add(time.Minute); keeper+worker > budget && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		keeper, worker = pss(t, h.KeeperPID), pss(t, h.WorkerPID)+pss(t, zygote) // they give memory back when they have nothing to do
	}
	size, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("PSS after %d containers: keeper %d kB, worker and zygote %d kB (the zygote %d); binary %d bytes", runs, keeper, worker, pss(t, zygote), size.Size())
	if keeper+worker > budget && !raceEnabled && slow() == 1 {
		t.Errorf("keeper, worker and zygote use %d kB, the budget is 15 MB", keeper+worker)
	}
}

func p50(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2].Round(10 * time.Microsecond)
}

// pss returns a process's proportional set size in kB.
func pss(t *testing.T, pid int) int {
	t.Helper()
	for line := range strings.Lines(readFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			kb, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return kb
		}
	}
	t.Fatalf("process %d has no PSS", pid)
	return 0
}

func openFDs(t *testing.T, pid int) int {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}
