package cdi

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/host/numa"
)

// A device is near to the NUMA nodes of its own nodes, as long as these are there, and of its network interfaces.
func TestNUMANodesOfDevices(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	dev, sys := filepath.Join(root, "dev"), filepath.Join(root, "sys")
	for i, at := range []string{"dev/char/1:3", "dev/char/1:5", "class/net/eth9"} {
		card := filepath.Join(sys, "devices", fmt.Sprint("card", i))
		must(t, os.MkdirAll(card, 0o755))
		write(t, filepath.Join(card, "numa_node"), fmt.Sprint(i))
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(sys, at)), 0o755))
		must(t, os.Symlink(card, filepath.Join(sys, at)))
	}
	mknod(t, dev+"/a", 1, 3)
	mknod(t, dev+"/b", 1, 5)
	write(t, filepath.Join(root, "cdi", "x.json"), `{"cdiVersion": "1.1.0", "kind": "v.com/w", "devices": [
		{"name": "a", "containerEdits": {"deviceNodes": [{"path": "/dev/w", "hostPath": "`+dev+`/a"}]}},
		{"name": "both", "containerEdits": {"deviceNodes": [{"path": "/dev/w", "hostPath": "`+dev+`/b"}, {"path": "/dev/x", "hostPath": "`+dev+`/a"}]}},
		{"name": "gone", "containerEdits": {"deviceNodes": [{"path": "/dev/w", "hostPath": "`+dev+`/gone"}]}},
		{"name": "net", "containerEdits": {"netDevices": [{"hostInterfaceName": "eth9", "name": "eth1"}]}},
		{"name": "none", "containerEdits": {"env": ["A=1"]}}]}`)
	c := load(new(cdispec.Reader), []string{filepath.Join(root, "cdi")}, advertiser{})
	near := newLocality(numa.Devices{Sys: sys, Proc: filepath.Join(root, "proc")})
	look := func() string {
		var all []string
		for _, d := range c.look(cdispec.ThisHost(), newIdentifier(patterns{}), near).snapshot.Devices {
			all = append(all, fmt.Sprint(d.Name, d.NUMA))
		}
		return fmt.Sprint(all)
	}
	if got := look(); got != "[a[0] both[0 1] gone[] net[2] none[]]" {
		t.Error(got)
	}
	must(t, os.Remove(dev+"/a"))
	if got := look(); got != "[a[] both[1] gone[] net[2] none[]]" {
		t.Errorf("after a node has gone: %s", got)
	}
	mknod(t, dev+"/a", 1, 5) // other hardware under the name
	if got := look(); got != "[a[1] both[1] gone[] net[2] none[]]" {
		t.Errorf("after another has come: %s", got)
	}
}
