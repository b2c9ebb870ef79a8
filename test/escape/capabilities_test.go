package escape

import (
	"encoding/binary"
	"os"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestCVE2022_29162, and with it CVE-2022-24769: capabilities in the inheritable set. A file with inheritable capabilities gives them to any
// user who executes it, in a process that has them in that set. The first container, as root, makes such a file in a volume; programs of
// another user, in a container to which capabilities are added, execute it: as its first process, and as a command.
//
// The attacker would have won if a process that is not root had a capability.
func TestCVE2022_29162(t *testing.T) {
	onEachEngine(t, nil, func(n *node) {
		shared := n.place()
		n.check(os.Chmod(shared, 0o755))
		p := n.pod(nil)
		made := p.output(mounted(shell("mkdir -m 755 -p /shared/capable && cp /bin/busybox /shared/capable/ && /attack inheritable /shared/capable/busybox && echo made"), shared, "/shared"))
		if made != "made\n" {
			n.Fatalf("the file could not be made: %q", made)
		}
		const show = "grep ^Cap /proc/self/status; /shared/capable/busybox grep ^Cap /proc/self/status; echo shown"
		cfg := able(mounted(shell(show+"; "+sleeper), shared, "/shared"), "NET_ADMIN", "SYS_PTRACE", "DAC_OVERRIDE", "SYS_ADMIN")
		cfg.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: 1000}
		c := p.launch(cfg)
		c.says("shown")
		for what, out := range map[string]string{"a container": c.printed(), "a command": c.exec("sh", "-c", show)} {
			held := regexp.MustCompile(`Cap(Inh|Prm|Eff|Amb):\s*([0-9a-f]+)`).FindAllStringSubmatch(out, -1)
			if len(held) != 8 {
				n.Errorf("%s has not shown its capabilities: %s", what, out)
			}
			for _, h := range held {
				if h[2] != "0000000000000000" {
					n.Errorf("%s of the user 1000 has the set %s", what, h[0])
				}
			}
		}
	})
}

// inheritable gives a file all capabilities of an ordinary container, and some more, as inheritable ones (linux/capability.h, struct
// vfs_cap_data of revision 2).
func inheritable(args []string) error {
	const revision2, effective = 0x02000000, 1
	all := ^uint32(0)
	var data []byte
	for _, word := range []uint32{revision2 | effective, 0, all, 0, 0x1ff} {
		data = binary.LittleEndian.AppendUint32(data, word)
	}
	return unix.Setxattr(args[0], "security.capability", data, 0)
}
