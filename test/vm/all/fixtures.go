package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/vm/machine"
)

// programs are what tests run of Debian's, where they look for it: the registry that images are pulled from, what copies and packs
// images, a server to put into an image, CNI's plugins and what these run, ip, the parser of AppArmor's profiles, what makes and knows disks, and what kubectl
// diff runs. Their shared libraries go with them.
var programs = []string{
	"/usr/bin/docker-registry", "/usr/bin/skopeo", "/usr/bin/zstd", "/usr/bin/tar", "/usr/sbin/nginx", "/usr/bin/ip", "/usr/sbin/nft", "/usr/sbin/apparmor_parser",
	"/usr/sbin/iptables", "/usr/sbin/ip6tables", "/usr/sbin/iptables-save", "/usr/sbin/ip6tables-save", "/usr/sbin/iptables-restore", "/usr/sbin/ip6tables-restore",
	"/usr/lib/cni/bandwidth", "/usr/lib/cni/bridge", "/usr/lib/cni/firewall", "/usr/lib/cni/host-local", "/usr/lib/cni/loopback", "/usr/lib/cni/portmap",
	"/usr/sbin/losetup", "/usr/sbin/blkid", "/usr/sbin/mkswap", "/usr/sbin/mkfs.ext2", "/usr/sbin/mkfs.btrfs", "/usr/bin/btrfs",
	"/usr/lib/cni/ptp", "/usr/lib/cni/static", "/usr/lib/cni/tuning", "/usr/bin/diff",
}

// folders are what programs load while they run.
var folders = []string{"/usr/lib/x86_64-linux-gnu/xtables", "/etc/containers", "/etc/apparmor", "/etc/apparmor.d/abi", "/usr/share/apparmor-features"}

// kernelModules are what tests need of the kernel beside what a node needs: for Debian's CNI plugins iptables' extensions and queues that
// limit bandwidth, FUSE for a file system that hangs, and btrfs.
var kernelModules = []string{"nft_compat", "xt_comment", "xt_conntrack", "xt_MASQUERADE", "xt_nat", "xt_mark", "xt_multiport", "xt_addrtype", "xt_tcpudp",
	"xt_statistic", "ifb", "sch_tbf", "sch_ingress", "cls_u32", "act_mirred", "macvlan", "fuse", "btrfs"}

// ldd is what the test images ask for a program's libraries: as the script of that name does, by the loader itself.
const ldd = "#!/bin/sh\nLD_TRACE_LOADED_OBJECTS=1 exec /lib64/ld-linux-x86-64.so.2 \"$@\"\n"

// fixtures are what every machine gets beside its tests.
type fixtures struct {
	init  string
	files map[string]string // by path in the machine
	env   []string
	// modules of the kernel
	modules []string
}

// gather finds and builds what goes into every machine.
func gather(ctx context.Context, dir string) (f fixtures, err error) {
	if f.init, err = machine.BuildInit(ctx, dir, machine.NativeArch); err != nil {
		return f, err
	}
	bin := filepath.Join(machine.SourceRoot, "bin")
	f.files = map[string]string{}
	for _, name := range []string{"examples", "docs"} {
		f.files[filepath.Join(machine.SourceRoot, name)] = name
	}
	for _, name := range []string{"monopod", "monopod-executor", "kubectl", "hello.tar"} {
		f.files[filepath.Join(bin, name)] = filepath.Join("bin", name)
	}
	runc, err := harness.BuildRunc(dir)
	if err != nil {
		return f, err
	}
	f.files[filepath.Join(bin, "runc")] = runc
	prometheus, err := machine.Unpacked(ctx, machine.DefaultCache(), "prometheus", "prometheus")
	if err != nil {
		return f, err
	}
	f.files[filepath.Join(bin, "prometheus")] = filepath.Join(prometheus, "usr", "bin", "prometheus")
	f.env = []string{"MONOPOD_BIN=" + bin, "MONOPOD_RUNC=" + filepath.Join(bin, "runc"), "MONOPOD_PROMETHEUS=" + filepath.Join(bin, "prometheus"), "CI=true"}
	put, err := machine.Programs(ctx, programs...)
	if err != nil {
		return f, err
	}
	maps.Copy(f.files, put)
	for _, name := range []string{"losetup", "blkid", "mkswap", "mkfs.ext2"} { // busybox has others of these names, which are found first
		f.files[filepath.Join("/usr/bin", name)] = filepath.Join("/usr/sbin", name)
	}
	disks, err := machine.NewDisks(ctx)
	if err != nil {
		return f, err
	}
	maps.Copy(f.files, disks.Files)
	f.env, f.modules = append(f.env, disks.Env...), append(slices.Clone(kernelModules), disks.Modules...)
	for _, d := range folders {
		f.files[d] = d
	}
	script := filepath.Join(dir, "ldd")
	if err := os.WriteFile(script, []byte(ldd), 0o755); err != nil {
		return f, err
	}
	f.files["/usr/bin/ldd"] = script
	for at, from := range f.files {
		if _, err := os.Stat(from); err != nil {
			return f, fmt.Errorf("%s is to be put into the machine: %w; `make test-vm-all` makes and installs all that is needed", at, err)
		}
	}
	return f, nil
}
