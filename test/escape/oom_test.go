package escape

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestOutOfMemoryWithItsGroup: with memory.oom.group the kernel kills all that is in a container's cgroup when it has no memory left, and with each
// process all that share its memory. The container stops whoever is being started in it while that has, perhaps, still the memory of
// what starts it, and then takes all the memory that it may have.
//
// The attacker would have won if one of the node's own processes had died with him.
func TestOutOfMemoryWithItsGroup(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		t.Skip("memory.oom.group is of cgroup v2, alone on its host: `make test-vm` runs this test")
	}
	onEachEngine(t, nil, func(n *node) {
		other := n.pod(nil)
		other.useful("before")
		lasting := n.processes()
		p := n.pod(nil)
		for range rounds(20) {
			cfg := able(command("/attack", "exhaust"), "SYS_PTRACE", "KILL")
			cfg.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, Unified: map[string]string{"memory.oom.group": "1"}}
			c := p.launch(cfg)
			c.says("ready")
			for c.status().GetState() == cri.ContainerState_CONTAINER_RUNNING {
				_, _ = c.tryExec(2, "/bin/true") // stopped, and killed with its container in the end
			}
			if reason := c.status().GetReason(); reason != "OOMKilled" {
				n.Errorf("the container ended with the reason %s, want OOMKilled: %s", reason, c.printed())
			}
			for pid, name := range lasting {
				if _, err := os.Stat(fmt.Sprintf("/proc/%d/task", pid)); err != nil || zombie(pid) {
					n.Fatalf("%s, process %d, has died with the container: %s", name, pid, c.printed())
				}
			}
			other.useful("afterwards")
			c.stop()
		}
	})
}

// zombie says that a process has ended.
func zombie(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err != nil || len(raw) == 0
}

// exhaust takes all memory that it can get, at a moment when somebody who is being started here is stopped and has much more memory than a program
// that starts: another one's. If that moment does not come, then with the tenth.
func exhaust([]string) error {
	fmt.Println("ready")
	go func() {
		for {
			_ = unix.Kill(-1, unix.SIGSTOP)
		}
	}()
	const large = 60 << 20 // bytes of address space
	for seen := 0; ; {
		dirs, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			return err
		}
		for _, dir := range dirs {
			pid, err := strconv.Atoi(filepath.Base(dir))
			var pages int
			raw, _ := os.ReadFile(dir + "/statm")
			if _, scan := fmt.Sscan(string(raw), &pages); err != nil || pid == os.Getpid() || scan != nil || pages == 0 {
				continue
			}
			size := pages * os.Getpagesize()
			if seen++; size > large || seen == 10 {
				fmt.Println("with a process of", size, "bytes")
				takeAll()
			}
			_ = unix.Kill(pid, unix.SIGCONT)
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

func takeAll() {
	var taken [][]byte
	for {
		block := make([]byte, 1<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		taken = append(taken, block)
		_ = taken
	}
}
