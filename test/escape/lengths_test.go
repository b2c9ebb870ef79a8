package escape

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestCVE2021_43784: what is to be done inside is handed over in messages whose lengths have 16 bits. A part that is longer than that is cut at its
// length modulo 65536, and its rest is taken for the next message, which is the attacker's: that there are to be no namespaces, say. Each part of a container's
// configuration that its pod writes is so long, in bytes and in number, and is full of such messages (linux/netlink.h, struct nlattr) and of numbers.
//
// The attacker would have won if the container had a namespace of the host's, was confined less than any other one, or if its program had other
// arguments and variables than it was given.
func TestCVE2021_43784(t *testing.T) {
	notShort(t)
	onEachEngine(t, nil, func(n *node) {
		n.unchanged(corePattern)
		p := n.pod(nil)
		ordinary := p.launch(asKubelets(sleeper)).exec("sh", "-c", confined)
		for _, length := range []int{1<<16 - 5, 1 << 16, 1<<16 + 1, 1<<16 + 24, 3 << 15} {
			evil := evilMessages(length)
			for what, change := range map[string]func(c *cri.ContainerConfig){
				"args":         func(c *cri.ContainerConfig) { c.Args = []string{"sh", evil} },
				"many args":    func(c *cri.ContainerConfig) { c.Args = append([]string{"sh"}, strings.SplitAfter(evil, "/x")...) },
				"envs":         func(c *cri.ContainerConfig) { c.Envs = []*cri.KeyValue{{Key: "EVIL", Value: []byte(evil)}} },
				"annotations":  func(c *cri.ContainerConfig) { c.Annotations = map[string]string{"evil": evil} },
				"masked paths": func(c *cri.ContainerConfig) { addMany(&c.Linux.SecurityContext.MaskedPaths, "/proc/version", length) },
				"read-only paths": func(c *cri.ContainerConfig) {
					addMany(&c.Linux.SecurityContext.ReadonlyPaths, "/proc/bus", length)
				},
				"working directory": func(c *cri.ContainerConfig) { c.WorkingDir = "/" + strings.Repeat("tmp/../", length/7) },
				"mounts": func(c *cri.ContainerConfig) {
					for i := range length / 4000 { // paths are bounded: in number only
						mounted(c, filepath.Join(n.host.Dir, "logs"), fmt.Sprintf("/m%d%s", i, strings.Repeat("/"+strings.Repeat("d", 250), 15)))
					}
				},
				"groups": func(c *cri.ContainerConfig) {
					for i := range length / 4 {
						c.Linux.SecurityContext.SupplementalGroups = append(c.Linux.SecurityContext.SupplementalGroups, int64(i))
					}
				},
			} {
				masks := strings.HasSuffix(what, "paths") // thousands on one file take seconds, and are the kubelet's to ask for
				if length != 1<<16+24 && (short() || masks) || short() && (masks || n.engine == "runc" && what != "args" && what != "envs") {
					continue
				}
				cfg := asKubelets(`echo "args $# env $(printf %s "$EVIL" | wc -c)"; ` + sleeper)
				change(cfg)
				n.wantOwnNamespaces(p, what, length, cfg, ordinary)
			}
		}
	})
}

// evilMessages are so many bytes of messages without a NUL, as a string of UTF-8, which all of CRI's are.
func evilMessages(length int) string {
	var b []byte
	for len(b) < length {
		for _, kind := range []uint16{27281, 27282, 27283, 27284, 27285, 27286, 27287, 27288} { // those that runc had: flags, namespaces' paths, maps
			b = binary.LittleEndian.AppendUint16(b, 0x0808)
			b = binary.LittleEndian.AppendUint16(b, kind)
			b = append(b, 1, 1, 1, 1, '/', 'x', '=', '0')
		}
	}
	return strings.ToValidUTF8(string(b), "?")[:length]
}

// addMany adds a path so often that the paths have that many bytes together.
func addMany(to *[]string, path string, length int) {
	for n := 0; n <= length; n += len(path) + 1 {
		*to = append(*to, path)
	}
}

// wantOwnNamespaces starts a container, which may be refused, and looks at what it came to.
func (n *node) wantOwnNamespaces(p *pod, what string, length int, cfg *cri.ContainerConfig, ordinary string) {
	n.Helper()
	args, env := len(cfg.GetArgs()), 0
	if len(cfg.GetEnvs()) > 0 {
		env = len(cfg.GetEnvs()[0].GetValue())
	}
	c := p.try(cfg)
	defer c.stop()
	if c.err != nil {
		n.Logf("%s of %d bytes are refused: %.200v", what, length, c.err)
		return
	}
	want := fmt.Sprintf("args %d env %d", max(args-1, 0), env) // the first one is the script's name
	c.says("env")
	if out := c.printed(); !strings.HasPrefix(out, want+"\n") {
		n.Errorf("%s of %d bytes: the program says %.200q, and should %q", what, length, out, want)
	}
	c.wantProc(ordinary)
	for _, kind := range []string{"mnt", "pid", "net", "ipc", "uts"} {
		host, err := os.Readlink("/proc/self/ns/" + kind)
		n.check(err)
		if has, err := os.Readlink(filepath.Join("/proc", itoa(c.process()), "ns", kind)); err != nil || has == host {
			n.Errorf("%s of %d bytes: the container's %s namespace is %s, the host's %s, %v", what, length, kind, has, host, err)
		}
	}
}
