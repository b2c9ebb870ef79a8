//go:build cgo

package spawn

/*
#include "stub.h"
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

// stubName is the name of a process that waits to execute its program.
const stubName = C.STUB_NAME

// plan is what the stub is to do; see stub.h.
type plan struct {
	flags                                                uint32
	umask                                                uint32
	uid, gid                                             uint32
	groups                                               []uint32
	bounding, effective, permitted, inheritable, ambient uint64
	path, cwd                                            string
	args, env                                            []string
	filter                                               []unix.SockFilter
	filterFlags                                          uint32
	keyring                                              string
	keyKeep, keyNew                                      uint32
	cgroups                                              int
	proc                                                 string // options of the file system at /proc, with flagProc
	procAttrs                                            uint32
	readonly, masked                                     []string
	limits                                               []configs.Rlimit
	label, fileLabel                                     string // of SELinux
	appArmor                                             string // the profile
}

const (
	flagNoNewPrivs   = C.PLAN_NO_NEW_PRIVS
	flagTerminal     = C.PLAN_TERMINAL
	flagCgroupNS     = C.PLAN_CGROUP_NS
	flagJoinCgroupNS = C.PLAN_JOIN_CGROUP_NS
	flagCapabilities = C.PLAN_CAPABILITIES
	flagTell         = C.PLAN_TELL
	flagProc         = C.PLAN_PROC
	flagReadonlyRoot = C.PLAN_READONLY_ROOT
)

// layout puts strings and arrays behind the plan's head.
type layout struct{ raw []byte }

func (l *layout) align() {
	for len(l.raw)%8 != 0 {
		l.raw = append(l.raw, 0)
	}
}

func (l *layout) text(s string) C.uint32_t {
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

// ownLimits are the resource limits that this program has changed for itself, as they were.
func ownLimits() []configs.Rlimit {
	return []configs.Rlimit{{Type: unix.RLIMIT_NOFILE, Soft: uint64(C.monopod_nofile.rlim_cur), Hard: uint64(C.monopod_nofile.rlim_max)}}
}

// encode lays the plan out as the stub reads it.
func (p *plan) encode() []byte {
	const headSize = int(unsafe.Sizeof(C.struct_plan{}))
	l := layout{raw: make([]byte, headSize, headSize+len(p.filter)*8+4096)}
	head := C.struct_plan{
		magic: C.PLAN_MAGIC, flags: C.uint32_t(p.flags), umask: C.uint32_t(p.umask), uid: C.uint32_t(p.uid), gid: C.uint32_t(p.gid),
		bounding: C.uint64_t(p.bounding), effective: C.uint64_t(p.effective), permitted: C.uint64_t(p.permitted),
		inheritable: C.uint64_t(p.inheritable), ambient: C.uint64_t(p.ambient),
		keykeep: C.uint32_t(p.keyKeep), keynew: C.uint32_t(p.keyNew), cgroups: C.uint32_t(p.cgroups),
		groups: l.words(p.groups), ngroups: C.uint32_t(len(p.groups)),
		readonly: l.texts(p.readonly), nreadonly: C.uint32_t(len(p.readonly)),
		masked: l.texts(p.masked), nmasked: C.uint32_t(len(p.masked)),
		proc: l.text(p.proc), procattrs: C.uint32_t(p.procAttrs),
		path: l.text(p.path),
		argv: l.texts(p.args), argc: C.uint32_t(len(p.args)),
		envp: l.texts(p.env), envc: C.uint32_t(len(p.env)),
	}
	if p.cwd != "" {
		head.cwd = l.text(p.cwd)
	}
	if p.keyring != "" {
		head.keyring = l.text(p.keyring)
	}
	if p.label != "" {
		head.label = l.text(p.label)
	}
	if p.fileLabel != "" {
		head.filelabel = l.text(p.fileLabel)
	}
	if p.appArmor != "" {
		head.apparmor = l.text("exec " + p.appArmor)
	}
	if len(p.limits) > 0 {
		l.align()
		head.limits, head.nlimits = C.uint32_t(len(l.raw)), C.uint32_t(len(p.limits))
		for _, limit := range p.limits {
			for _, v := range []uint64{uint64(limit.Type), limit.Soft, limit.Hard} {
				l.raw = binary.NativeEndian.AppendUint64(l.raw, v)
			}
		}
	}
	if len(p.filter) > 0 {
		l.align()
		head.filter, head.nfilter, head.filterflags = C.uint32_t(len(l.raw)), C.uint32_t(len(p.filter)), C.uint32_t(p.filterFlags)
		size := len(p.filter) * int(unsafe.Sizeof(p.filter[0]))
		l.raw = append(l.raw, unsafe.Slice((*byte)(unsafe.Pointer(&p.filter[0])), size)...)
	}
	head.size = C.uint32_t(len(l.raw))
	copy(l.raw, unsafe.Slice((*byte)(unsafe.Pointer(&head)), headSize))
	return l.raw
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
