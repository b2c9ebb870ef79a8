package cdispec

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// hostWith makes a host of its own to look at: real device nodes, and tables with known content.
func hostWith(t *testing.T) (h Host, dev string) {
	t.Helper()
	dir := t.TempDir()
	dev = filepath.Join(dir, "dev")
	write(t, filepath.Join(dir, "devices"), "Character devices:\n  1 mem\n195 widget\n\nBlock devices:\n259 blkext\n")
	write(t, filepath.Join(dir, "net", "eth7"), "")
	write(t, filepath.Join(dir, "sys/char/188:4"), "")
	write(t, filepath.Join(dir, "sys/block/8:0"), "")
	write(t, filepath.Join(dev, "plain"), "")
	for name, n := range map[string]struct {
		mode         uint32
		major, minor uint32
	}{"char": {unix.S_IFCHR, 195, 3}, "block": {unix.S_IFBLK, 259, 1}, "pipe": {unix.S_IFIFO, 0, 0}} {
		if err := unix.Mknod(filepath.Join(dev, name), n.mode|0o600, int(unix.Mkdev(n.major, n.minor))); err != nil {
			t.Fatalf("mknod (these tests need root): %v", err)
		}
	}
	if err := os.Symlink("char", filepath.Join(dev, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dev, "astray")); err != nil {
		t.Fatal(err)
	}
	sock, err := net.Listen("unix", filepath.Join(dev, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close() })
	return Host{ProcDevices: filepath.Join(dir, "devices"), SysDev: filepath.Join(dir, "sys"), SysClassNet: filepath.Join(dir, "net")}, dev
}

func TestCheckNode(t *testing.T) {
	h, dev := hostWith(t)
	for _, tc := range []struct {
		node    specs.DeviceNode
		fault   string // "": none
		missing bool
	}{
		{node: specs.DeviceNode{Path: "/dev/char"}},
		{node: specs.DeviceNode{Path: "/dev/char", Type: "c", Major: 195, Minor: 3}},
		{node: specs.DeviceNode{Path: "/dev/char", Type: "u"}},
		{node: specs.DeviceNode{Path: "/dev/block", Type: "b", Major: 259, Minor: 1}},
		{node: specs.DeviceNode{Path: "/dev/pipe", Type: "p"}},
		{node: specs.DeviceNode{Path: "/dev/char", Major: 235, Minor: 3}, fault: "has device number 195:3, the spec says 235:3"},
		{node: specs.DeviceNode{Path: "/dev/char", Major: 195}, fault: "has device number 195:3, the spec says 195:0"},
		{node: specs.DeviceNode{Path: "/dev/char", Type: "b"}, fault: `has type "c", the spec says "b"`},
		{node: specs.DeviceNode{Path: "/dev/plain"}, fault: "is a regular file, not a device node"},
		{node: specs.DeviceNode{Path: "/dev/link"}},
		{node: specs.DeviceNode{Path: "/dev/link", Type: "c", Major: 195, Minor: 4}, fault: "has device number 195:3, the spec says 195:4"},
		{node: specs.DeviceNode{Path: "/dev/astray"}, fault: "does not exist", missing: true},
		{node: specs.DeviceNode{Path: "/dev/sock"}, fault: "is a socket, not a device node"},
		{node: specs.DeviceNode{Path: "/dev"}, fault: "is a directory, not a device node"},
		{node: specs.DeviceNode{Path: "/dev/none"}, fault: "does not exist", missing: true},
		{node: specs.DeviceNode{Path: "/dev/char/none"}, fault: "cannot be looked at: not a directory"},
		{node: specs.DeviceNode{Path: "/dev/none", Type: "c"}, fault: "does not exist", missing: true},
		// Described in full, a node need not be there; its driver must.
		{node: specs.DeviceNode{Path: "/dev/none", Type: "c", Major: 195, Minor: 9}},
		{node: specs.DeviceNode{Path: "/dev/none", Type: "b", Major: 259}},
		{node: specs.DeviceNode{Path: "/dev/none", Type: "p"}},
		{node: specs.DeviceNode{Path: "/dev/none", Type: "b", Major: 195}, fault: "does not exist, and no driver has registered the major number 195 (b)", missing: true},
		{node: specs.DeviceNode{Path: "/dev/none", Type: "c", Major: 235}, fault: "does not exist, and no driver has registered the major number 235 (c)", missing: true},
		// A driver that lists its devices has no others.
		{node: specs.DeviceNode{Path: "/dev/none", Type: "c", Major: 188, Minor: 4}},
		{node: specs.DeviceNode{Path: "/dev/none", Type: "c", Major: 188, Minor: 5}, fault: "does not exist, and its driver has no device 188:5 (c), which the spec says", missing: true},
		{node: specs.DeviceNode{Path: "/dev/none", Type: "b", Major: 8}},
		{node: specs.DeviceNode{Path: "/dev/none", Type: "c", Major: 8}, fault: "does not exist, and no driver has registered the major number 8 (c)", missing: true},
	} {
		t.Run(fmt.Sprintf("%s %s %d:%d", tc.node.Path, tc.node.Type, tc.node.Major, tc.node.Minor), func(t *testing.T) {
			tc.node.HostPath = strings.Replace(tc.node.Path, "/dev", dev, 1)
			faults := h.check([]*specs.ContainerEdits{{DeviceNodes: []*specs.DeviceNode{&tc.node, &tc.node}}}, nil)
			switch {
			case tc.fault == "" && len(faults) > 0:
				t.Errorf("got %+v, want none", faults)
			case tc.fault != "" && (len(faults) != 1 || !strings.HasPrefix(faults[0].Detail, tc.fault) || faults[0].Missing != tc.missing || faults[0].Path != tc.node.HostPath):
				t.Errorf("got %+v, want %q at %s (missing: %v)", faults, tc.fault, tc.node.HostPath, tc.missing)
			}
		})
	}
}

// TestRemedies: what is missing says what helps: the program of a hook comes with no driver.
func TestRemedies(t *testing.T) {
	h, dev := hostWith(t)
	none := filepath.Join(dev, "none")
	hook, mount := []*specs.Hook{{Path: none}}, []*specs.Mount{{HostPath: none + "2", ContainerPath: "/x"}}
	for want, edits := range map[string]specs.ContainerEdits{
		none + " does not exist; install the hook's program":                                                                        {Hooks: hook},
		none + "2 does not exist; regenerate the spec, or load the driver":                                                          {Mounts: mount},
		none + "2 does not exist; " + none + " does not exist; install the hook's program; regenerate the spec, or load the driver": {Hooks: hook, Mounts: mount},
	} {
		err := h.Check(&Device{Name: "v.com/c=1", File: &File{Path: "f.json", Spec: &specs.Spec{ContainerEdits: edits}}, Edits: &specs.ContainerEdits{}}, false)
		if full := `f.json, device "v.com/c=1", does not fit this host: ` + want; err == nil || err.Error() != full {
			t.Errorf("got  %v\nwant %s", err, full)
		}
	}
}

func TestCheckOfEverythingElse(t *testing.T) {
	h, dev := hostWith(t)
	plain, none := filepath.Join(dev, "plain"), filepath.Join(dev, "none")
	tool := filepath.Join(dev, "tool")
	write(t, tool, "#!/bin/true")
	if err := os.Chmod(tool, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		edits specs.ContainerEdits
		inUse bool
		want  string
	}{
		{name: "environment only", edits: specs.ContainerEdits{Env: []string{"A=b"}}},
		{name: "a mount", edits: specs.ContainerEdits{Mounts: []*specs.Mount{{HostPath: plain, ContainerPath: "/x"}}}},
		{name: "a mount's source is gone", edits: specs.ContainerEdits{Mounts: []*specs.Mount{{HostPath: none, ContainerPath: "/x", Options: []string{"ro", "rbind"}}}},
			want: none + " does not exist"},
		{name: "a mount without a source on the host", edits: specs.ContainerEdits{Mounts: []*specs.Mount{{HostPath: "tmpfs", Type: "tmpfs", ContainerPath: "/x"}}}},
		{name: "a hook", edits: specs.ContainerEdits{Hooks: []*specs.Hook{{Path: tool}}}},
		{name: "a hook that is gone", edits: specs.ContainerEdits{Hooks: []*specs.Hook{{Path: none}}}, want: none + " does not exist"},
		{name: "a hook that cannot run", edits: specs.ContainerEdits{Hooks: []*specs.Hook{{Path: plain}}}, want: plain + " is a hook and not executable"},
		{name: "a relative hook", edits: specs.ContainerEdits{Hooks: []*specs.Hook{{Path: "bin/x"}}}, want: "bin/x is a hook's path and not absolute"},
		{name: "an interface", edits: specs.ContainerEdits{NetDevices: []*specs.LinuxNetDevice{{HostInterfaceName: "eth7"}}}},
		{name: "no such interface", edits: specs.ContainerEdits{NetDevices: []*specs.LinuxNetDevice{{HostInterfaceName: "eth8"}}},
			want: "network interface eth8 does not exist"},
		{name: "an interface that the container has", edits: specs.ContainerEdits{NetDevices: []*specs.LinuxNetDevice{{HostInterfaceName: "eth8"}}}, inUse: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, f := range h.check([]*specs.ContainerEdits{{}, &tc.edits}, func(*specs.LinuxNetDevice) bool { return tc.inUse }) {
				got = append(got, f.Path+" "+f.Detail)
			}
			if strings.Join(got, "; ") != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
