//go:build cgo

package spawn

import (
	"encoding/binary"
	"runtime"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// bornBy are the calls that a start process makes after a filter which takes a privilege to load, if it is loaded before its successor is born
// (start.c): the birth, and what only the successor can do.
func bornBy(terminal bool) [][7]uint64 {
	calls := [][7]uint64{{unix.SYS_CLONE, unix.CLONE_PARENT | uint64(unix.SIGCHLD)}, {unix.SYS_SETSID}}
	if terminal {
		calls = append(calls, [7]uint64{unix.SYS_IOCTL, 0, unix.TIOCSCTTY})
	}
	return calls
}

// letsBeBorn says that the filter allows those calls. Where it does not, the process is born before it is loaded.
func (f *filter) letsBeBorn(terminal bool) bool {
	if len(f.program) == 0 {
		return true
	}
	f.once.Do(func() {
		f.born[0], f.born[1] = allows(f.program, bornBy(false)), allows(f.program, bornBy(true))
	})
	if terminal {
		return f.born[1]
	}
	return f.born[0]
}

// audited is what a filter sees as the architecture (AUDIT_ARCH of linux/audit.h).
var audited = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]

// allows runs a filter over calls: each a number and its arguments.
func allows(program []unix.SockFilter, calls [][7]uint64) bool {
	raw := make([]bpf.RawInstruction, len(program))
	for i, ins := range program {
		raw[i] = bpf.RawInstruction{Op: ins.Code, Jt: ins.Jt, Jf: ins.Jf, K: ins.K}
	}
	decoded, ok := bpf.Disassemble(raw)
	if !ok {
		return false
	}
	vm, err := bpf.NewVM(decoded)
	if err != nil {
		return false
	}
	for _, call := range calls {
		verdict, err := vm.Run(seccompData(call))
		if err != nil {
			return false
		}
		if action := uint32(verdict) & unix.SECCOMP_RET_ACTION_FULL; action != unix.SECCOMP_RET_ALLOW && action != unix.SECCOMP_RET_LOG {
			return false
		}
	}
	return true
}

// seccompData is struct seccomp_data (linux/seccomp.h) as that machine reads it: its words are those of a packet, big-endian. The halves of
// the arguments lie as on a little-endian machine, which all are that this is for.
func seccompData(call [7]uint64) []byte {
	data := binary.BigEndian.AppendUint32(nil, uint32(call[0]))
	data = binary.BigEndian.AppendUint32(data, audited)
	data = binary.BigEndian.AppendUint64(data, 0) // the instruction pointer
	for _, arg := range call[1:] {
		data = binary.BigEndian.AppendUint32(data, uint32(arg))
		data = binary.BigEndian.AppendUint32(data, uint32(arg>>32))
	}
	return data
}
