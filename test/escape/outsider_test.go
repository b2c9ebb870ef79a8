package escape

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestCVE2021_41103, and with it CVE-2024-25621: a user of the host, without any right, comes to the files of containers. A container has written
// a setuid file, and one that says who may read it, to its root file system, its shared memory and a volume of its image's. All names by which the
// host has these files below the node's directories are tried, as uid 65534.
//
// The attacker would have won if one of them could be opened, or executed.
func TestCVE2021_41103(t *testing.T) {
	onEachEngine(t, nil, func(n *node) {
		n.check(os.Chmod(n.host.Dir, 0o755)) // as /var/lib and /run are
		secret := n.canary()
		const script = `for d in /root /dev/shm /opt; do mkdir -p $d/deep; chmod 777 $d $d/deep
			cp /attack $d/deep/attack; chmod 4755 $d/deep/attack; echo "$0" > $d/deep/text; chmod 666 $d/deep/text; done; echo made; ` + sleeper
		p := n.pod(func(c *cri.PodSandboxConfig) { c.Hostname = "outsider" })
		c := p.launch(command("sh", "-c", script, secret.text))
		c.says("made")
		names := n.namesOf("attack", "text", "hostname", "resolv.conf", "hosts")
		if len(names) < 3 {
			n.Fatalf("the container's files were not found on the host: %q", names)
		}
		for _, path := range []string{"root/deep/attack", "dev/shm/deep/attack", "opt/deep/text"} {
			names = append(names, filepath.Join("/proc", itoa(c.process()), "root", path))
		}
		var read, executed []string
		for _, name := range names {
			if _, err := asNobody("/bin/busybox", "cat", name); err == nil {
				read = append(read, name)
			}
			if filepath.Base(name) == "attack" {
				if uid, err := asNobody(name, "user"); err == nil {
					executed = append(executed, name+" as "+uid)
				}
			}
		}
		if len(read)+len(executed) > 0 {
			n.Errorf("uid 65534 reads\n%s\nand executes\n%s", strings.Join(read, "\n"), strings.Join(executed, "\n"))
		}
	})
}

// tellUser says as whom it runs.
func tellUser([]string) error {
	_, err := fmt.Println(os.Geteuid())
	return err
}

// namesOf are all paths below the node's directories that end in one of the names, mounts included.
func (n *node) namesOf(names ...string) (all []string) {
	n.Helper()
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	for _, dir := range []string{"data", "run"} {
		_ = filepath.WalkDir(filepath.Join(n.host.Dir, dir), func(path string, e os.DirEntry, err error) error {
			if err == nil && wanted[e.Name()] && e.Type().IsRegular() {
				all = append(all, path)
			}
			return nil // what goes away meanwhile is nobody's
		})
	}
	return all
}

// asNobody runs a program of the host as uid 65534, without groups.
func asNobody(args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}
