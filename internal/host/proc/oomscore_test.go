package proc

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func score(t *testing.T, pid int) string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}

func TestAdjustOOMScores(t *testing.T) {
	var pids []int
	for range 3 {
		pid := child(t, "exec sleep 1000")
		pids = append(pids, pid)
		t.Cleanup(func() {
			unix.Kill(pid, unix.SIGKILL)
			var ws unix.WaitStatus
			unix.Wait4(pid, &ws, 0, nil)
		})
	}
	stranger := pids[2]
	own := score(t, pids[0])
	var was int
	fmt.Sscan(own, &was)
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pids[1]), []byte("777"), 0); err != nil {
		t.Fatal(err)
	}
	calls := 0
	group := func() ([]int, error) {
		calls++
		if calls == 1 {
			return append(slices.Clone(pids), 1<<22+5), nil // one of them leaves the group at once; the last one has ended
		}
		return pids[:2], nil
	}
	if err := AdjustOOMScores(group, was, 555); err != nil {
		t.Fatal(err)
	}
	if got := []string{score(t, pids[0]), score(t, pids[1]), score(t, stranger)}; !slices.Equal(got, []string{"555", "777", own}) {
		t.Errorf("scores %v: want the new one, the one that was set by itself, and a stranger's", got)
	}
	if err := AdjustOOMScores(group, 555, was); err != nil || score(t, pids[0]) != own {
		t.Errorf("back to %s: %v, %s", own, err, score(t, pids[0]))
	}
}
