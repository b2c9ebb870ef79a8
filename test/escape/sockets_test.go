package escape

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestCVE2020_15257: a socket of the abstract namespace belongs to a network namespace, not to a file system. A container in the host's network
// connects to each one that it sees.
//
// The attacker would have won if one of the node's processes listened on such a socket.
func TestCVE2020_15257(t *testing.T) {
	onEachEngine(t, nil, func(n *node) {
		p := n.pod(func(c *cri.PodSandboxConfig) {
			c.Hostname = ""
			c.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
		})
		c := p.launch(able(shell(sleeper), "NET_ADMIN"))
		// What can be reached, so that to reach nothing else means something.
		decoy := "@" + c.id
		l, err := net.Listen("unix", decoy)
		n.check(err)
		defer l.Close()
		// With streams being served, and a command that runs: whatever listens only then is there.
		_, err = n.rt.Exec(n.ctx, &cri.ExecRequest{ContainerId: c.id, Cmd: []string{"sh"}, Stdout: true, Stderr: true})
		n.check(err)
		mine := n.socketsOfTheNode()
		if len(mine) == 0 {
			n.Fatal("the node's processes have no sockets: they were not found")
		}
		out := c.exec("/attack", "sockets")
		decoyed := false
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			if len(f) < 3 {
				continue
			}
			decoyed = decoyed || f[2] == decoy
			if owner := mine[f[1]]; owner != "" {
				n.Errorf("a container in the host's network reaches a socket of %s: %s", owner, line)
			}
		}
		if !decoyed {
			n.Errorf("the attacker does not even reach the test's own socket %s: %q", decoy, out)
		}
	})
}

// socketsOfTheNode are the numbers of the sockets that the node's processes have, and whose they are.
func (n *node) socketsOfTheNode() map[string]string {
	n.Helper()
	mine := map[string]string{}
	for pid, name := range n.processes() {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			target, err := os.Readlink(fd)
			if number, ok := strings.CutPrefix(target, "socket:["); err == nil && ok {
				mine[strings.TrimSuffix(number, "]")] = name
			}
		}
	}
	return mine
}

// processes are those of the node itself, by what their command lines say: not those of containers.
func (n *node) processes() map[int]string {
	n.Helper()
	found := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		raw, err := os.ReadFile(dir + "/cmdline")
		args := strings.Split(string(raw), "\x00")
		if err != nil || !strings.Contains(string(raw), n.host.Dir+"/") {
			continue
		}
		name := filepath.Base(args[0])
		if !strings.HasPrefix(name, "monopod") && name != "runc" {
			continue
		}
		var pid int
		if _, err := fmt.Sscan(filepath.Base(dir), &pid); err == nil {
			found[pid] = name
		}
	}
	return found
}

// sockets connects to all unix sockets of the abstract namespace. A line each for those that answered:
// what, the number of the socket, its name.
func sockets([]string) error {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		part := strings.Fields(lines.Text()) // Num RefCount Protocol Flags Type St Inode Path (proc_net(5))
		if len(part) != 8 || !strings.HasPrefix(part[7], "@") {
			continue
		}
		for _, network := range []string{"unix", "unixpacket", "unixgram"} {
			conn, err := net.DialTimeout(network, part[7], time.Second)
			if err == nil {
				conn.Close()
				fmt.Println(network, part[6], part[7])
			}
		}
	}
	return nil
}
