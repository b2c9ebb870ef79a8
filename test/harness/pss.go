package harness

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// PSS returns the proportional set size, in kB, of all processes whose command line has the mark
// (proc_pid_smaps(5), smaps_rollup).
func PSS(t testing.TB, mark string) (kB, processes int) {
	t.Helper()
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		args, err := os.ReadFile(d + "/cmdline")
		if err != nil || !strings.Contains(strings.ReplaceAll(string(args), "\x00", " "), mark) || d == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		f, err := os.Open(d + "/smaps_rollup")
		if err != nil {
			continue // it has ended meanwhile
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			var n int
			if _, err := fmt.Sscanf(sc.Text(), "Pss: %d kB", &n); err == nil {
				kB += n
				processes++
			}
		}
		f.Close()
	}
	return kB, processes
}
