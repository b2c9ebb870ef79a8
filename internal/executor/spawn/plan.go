//go:build cgo

package spawn

/*
#cgo CFLAGS: -Werror=implicit-function-declaration
#include "plan.h"
#include "zygote.h"
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// plan is what a start process is to do; see plan.h.
type plan struct {
	flags                                                uint32
	umask                                                uint32
	uid, gid                                             uint32
	groups                                               []uint32
	bounding, effective, permitted, inheritable, ambient uint64
	program, search, cwd                                 string
	args, env                                            []string
	filter                                               []unix.SockFilter
	filterFlags                                          uint32
	keyring                                              string
	keyKeep, keyNew                                      uint32
	readonly, masked                                     []string
	limits                                               []configs.Rlimit
	label, fileLabel                                     string // of SELinux
	appArmor                                             string // the profile
	width, height                                        uint16 // of the terminal
	place                                                place
}

// place is the part of a plan that makes a container's namespaces, root and mounts.
type place struct {
	rootfs          string
	rootPropagation uint32
	rootShared      uint32
	namespaces      []namespace
	hierarchies     []hierarchy
	mounts          []mountPlan
	devices         []devicePlan
	links           [][2]string // target and name, in /dev
}

// namespace is joined, or made if it has no path.
type namespace struct {
	kind uint32
	path string
}

type mountPlan struct {
	kind, flags                           uint32
	source, destination                   string
	fstype, data, label                   string
	propagation                           []uint32
	set, clear                            uint64
	recSet, recClear, recursivePropagates uint64
}

type devicePlan struct {
	folder, name, path string
	mode, uid, gid     uint32
	number             uint64
}

const (
	flagNoNewPrivs   = C.PLAN_NO_NEW_PRIVS
	flagTerminal     = C.PLAN_TERMINAL
	flagCgroupNS     = C.PLAN_CGROUP_NS
	flagCapabilities = C.PLAN_CAPABILITIES
	flagTell         = C.PLAN_TELL
	flagReadonlyRoot = C.PLAN_READONLY_ROOT
	flagRoot         = C.PLAN_ROOT
	flagLoopback     = C.PLAN_LOOPBACK
	flagDev          = C.PLAN_DEV
	flagBindDevices  = C.PLAN_BIND_DEVICES
	flagHome         = C.PLAN_HOME
	flagLate         = C.PLAN_LATE

	mountBind   = C.MOUNT_BIND
	mountNew    = C.MOUNT_NEW
	mountCgroup = C.MOUNT_CGROUP
	mountProc   = C.MOUNT_PROC

	mountRec          = C.MOUNT_REC
	mountRecAttr      = C.MOUNT_RECATTR
	mountNoLinks      = C.MOUNT_NO_LINKS
	mountTmpfs        = C.MOUNT_TMPFS
	mountLabelRoot    = C.MOUNT_LABEL_ROOT
	mountReadonlyLate = C.MOUNT_READONLY_LATE
	mountProcFile     = C.MOUNT_PROC_FILE
	mountAtProc       = C.MOUNT_AT_PROC
	mountInProc       = C.MOUNT_IN_PROC
)

// layout puts strings and arrays behind the plan's head.
type layout struct{ raw []byte }

func (l *layout) align() {
	for len(l.raw)%8 != 0 {
		l.raw = append(l.raw, 0)
	}
}

// text of an empty string is none.
func (l *layout) text(s string) C.uint32_t {
	if s == "" {
		return 0
	}
	at := len(l.raw)
	l.raw = append(append(l.raw, s...), 0)
	return C.uint32_t(at)
}

func (l *layout) words(values []uint32) C.uint32_t {
	l.align()
	at := len(l.raw)
	for _, v := range values {
		l.raw = binary.NativeEndian.AppendUint32(l.raw, v)
	}
	return C.uint32_t(at)
}

func (l *layout) texts(all []string) C.uint32_t {
	offsets := make([]uint32, len(all))
	for i, s := range all {
		offsets[i] = uint32(l.text(s))
	}
	return l.words(offsets)
}

// structs appends an array of C structs (or of what has the same shape in both languages), which hold no pointers.
func structs[T any](l *layout, all []T) C.uint32_t {
	l.align()
	at := len(l.raw)
	if len(all) > 0 {
		l.raw = append(l.raw, unsafe.Slice((*byte)(unsafe.Pointer(&all[0])), len(all)*int(unsafe.Sizeof(all[0])))...)
	}
	return C.uint32_t(at)
}

// OwnLimits are the resource limits that this program changes for itself, as they were when it was started.
func OwnLimits() []configs.Rlimit {
	return []configs.Rlimit{
		{Type: unix.RLIMIT_NOFILE, Soft: uint64(C.monopod_nofile.rlim_cur), Hard: uint64(C.monopod_nofile.rlim_max)},
		{Type: unix.RLIMIT_MEMLOCK, Soft: uint64(C.monopod_memlock.rlim_cur), Hard: uint64(C.monopod_memlock.rlim_max)},
	}
}

// encode lays the plan out as the start process reads it.
func (p *plan) encode() []byte {
	const headSize = int(unsafe.Sizeof(C.struct_plan{}))
	l := &layout{raw: make([]byte, headSize, headSize+len(p.filter)*8+8192)}
	head := C.struct_plan{
		magic: C.PLAN_MAGIC, flags: C.uint32_t(p.flags), umask: C.uint32_t(p.umask), uid: C.uint32_t(p.uid), gid: C.uint32_t(p.gid),
		bounding: C.uint64_t(p.bounding), effective: C.uint64_t(p.effective), permitted: C.uint64_t(p.permitted),
		inheritable: C.uint64_t(p.inheritable), ambient: C.uint64_t(p.ambient),
		keykeep: C.uint32_t(p.keyKeep), keynew: C.uint32_t(p.keyNew),
		groups: l.words(p.groups), ngroups: C.uint32_t(len(p.groups)),
		readonly: l.texts(p.readonly), nreadonly: C.uint32_t(len(p.readonly)),
		masked: l.texts(p.masked), nmasked: C.uint32_t(len(p.masked)),
		program: l.text(p.program), search: l.text(p.search), cwd: l.text(p.cwd), keyring: l.text(p.keyring),
		label: l.text(p.label), filelabel: l.text(p.fileLabel),
		argv: l.texts(p.args), argc: C.uint32_t(len(p.args)),
		envp: l.texts(p.env), envc: C.uint32_t(len(p.env)),
		width: C.uint32_t(p.width), height: C.uint32_t(p.height),
	}
	if p.appArmor != "" {
		head.apparmor = l.text("exec " + p.appArmor)
	}
	limits := make([]C.struct_limit, len(p.limits))
	for i, limit := range p.limits {
		limits[i] = C.struct_limit{resource: C.uint64_t(limit.Type), soft: C.uint64_t(limit.Soft), hard: C.uint64_t(limit.Hard)}
	}
	head.limits, head.nlimits = structs(l, limits), C.uint32_t(len(limits))
	head.filter, head.nfilter, head.filterflags = structs(l, p.filter), C.uint32_t(len(p.filter)), C.uint32_t(p.filterFlags)
	if p.flags&flagRoot != 0 {
		p.place.encode(l, &head)
	}
	head.size = C.uint32_t(len(l.raw))
	copy(l.raw, unsafe.Slice((*byte)(unsafe.Pointer(&head)), headSize))
	return l.raw
}

func (p *place) encode(l *layout, head *C.struct_plan) {
	head.rootfs, head.rootpropagation, head.rootshared = l.text(p.rootfs), C.uint32_t(p.rootPropagation), C.uint32_t(p.rootShared)
	namespaces := make([]C.struct_namespace, len(p.namespaces))
	for i, n := range p.namespaces {
		namespaces[i] = C.struct_namespace{kind: C.uint32_t(n.kind), path: l.text(n.path)}
	}
	head.namespaces, head.nnamespaces = structs(l, namespaces), C.uint32_t(len(namespaces))
	hierarchies := make([]C.struct_hierarchy, len(p.hierarchies))
	for i, h := range p.hierarchies {
		hierarchies[i] = C.struct_hierarchy{dir: l.text(h.dir), name: l.text(h.name), also: l.texts(h.also), nalso: C.uint32_t(len(h.also))}
	}
	head.hierarchies, head.nhierarchies = structs(l, hierarchies), C.uint32_t(len(hierarchies))
	mounts := make([]C.struct_mount_plan, len(p.mounts))
	for i, m := range p.mounts {
		mounts[i] = C.struct_mount_plan{kind: C.uint32_t(m.kind), flags: C.uint32_t(m.flags),
			source: l.text(m.source), destination: l.text(m.destination), fstype: l.text(m.fstype), data: l.text(m.data), label: l.text(m.label),
			propagation: l.words(m.propagation), npropagation: C.uint32_t(len(m.propagation)), set: C.uint64_t(m.set), clear: C.uint64_t(m.clear),
			recset: C.uint64_t(m.recSet), recclear: C.uint64_t(m.recClear), recpropagation: C.uint64_t(m.recursivePropagates)}
	}
	head.mounts, head.nmounts = structs(l, mounts), C.uint32_t(len(mounts))
	devices := make([]C.struct_device, len(p.devices))
	for i, d := range p.devices {
		devices[i] = C.struct_device{folder: l.text(d.folder), name: l.text(d.name), path: l.text(d.path), mode: C.uint32_t(d.mode),
			uid: C.uint32_t(d.uid), gid: C.uint32_t(d.gid), number: C.uint64_t(d.number)}
	}
	head.devices, head.ndevices = structs(l, devices), C.uint32_t(len(devices))
	links := make([]C.struct_link, len(p.links))
	for i, link := range p.links {
		links[i] = C.struct_link{target: l.text(link[0]), name: l.text(link[1])}
	}
	head.links, head.nlinks = structs(l, links), C.uint32_t(len(links))
}

// file writes the plan to a file in memory.
func (p *plan) file() (fd int, err error) {
	fd, err = unix.MemfdCreate("plan", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	raw := p.encode()
	if n, err := unix.Write(fd, raw); err != nil || n != len(raw) {
		unix.Close(fd)
		return -1, fmt.Errorf("write the plan: %d of %d bytes: %w", n, len(raw), err)
	}
	return fd, nil
}
