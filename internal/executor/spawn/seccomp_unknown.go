//go:build cgo

package spawn

import (
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/runc/libcontainer/configs"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// Audit numbers of the architectures (linux/audit.h), by which a filter is told which one a call is made in.
var auditArchs = map[libseccomp.ScmpArch]uint32{
	libseccomp.ArchAMD64: unix.AUDIT_ARCH_X86_64, libseccomp.ArchX32: unix.AUDIT_ARCH_X86_64, libseccomp.ArchX86: unix.AUDIT_ARCH_I386,
	libseccomp.ArchARM64: unix.AUDIT_ARCH_AARCH64, libseccomp.ArchARM: unix.AUDIT_ARCH_ARM,
}

// x32Bit marks the numbers of the x32 ABI's calls, which has the audit number of x86_64.
const x32Bit = 1 << 30

// Offsets in struct seccomp_data, and what a filter returns for a call that does not exist.
const (
	offsetNumber, offsetArch = 0, 4
	returnENOSYS             = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// unknownCalls makes the begin of a program, which answers ENOSYS to each call that is newer than the newest that the
// profile names: a C library then falls back to an older call, where EPERM would make it fail. A profile that allows by
// default, or answers ENOSYS anyway, needs none.
func unknownCalls(profile *configs.Seccomp) ([]unix.SockFilter, error) {
	switch profile.DefaultAction {
	case configs.Allow, configs.Log, configs.Trace:
		return nil, nil
	}
	if profile.DefaultErrnoRet != nil && *profile.DefaultErrnoRet == uint(unix.ENOSYS) {
		return nil, nil
	}
	archs := map[libseccomp.ScmpArch]bool{}
	for _, name := range profile.Architectures {
		arch, err := libseccomp.GetArchFromString(name)
		if err != nil {
			return nil, err
		}
		archs[arch] = true
	}
	native, err := libseccomp.GetNativeArch()
	if err != nil {
		return nil, err
	}
	archs[native] = true
	var program []unix.SockFilter
	for _, arch := range slices.Sorted(maps.Keys(archs)) {
		newest := libseccomp.ScmpSyscall(0)
		for _, call := range profile.Syscalls {
			if n, err := libseccomp.GetSyscallFromNameByArch(call.Name, arch); err == nil && n > newest {
				newest = n
			}
		}
		audit, ok := auditArchs[arch]
		if !ok {
			return nil, fmt.Errorf("architecture %s is not known here", arch)
		}
		if newest > 0 {
			program = append(program, beyond(arch, audit, uint32(newest))...)
		}
	}
	return program, nil
}

// beyond answers ENOSYS to the calls of one architecture whose number is greater than the newest's, and lets all others through.
func beyond(arch libseccomp.ScmpArch, audit, newest uint32) []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	jump := func(code uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | code, K: k, Jt: yes, Jf: no}
	}
	answer := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: returnENOSYS}
	switch arch {
	case libseccomp.ArchAMD64:
		return []unix.SockFilter{load(offsetArch), jump(unix.BPF_JEQ, audit, 0, 4), load(offsetNumber), jump(unix.BPF_JSET, x32Bit, 2, 0), jump(unix.BPF_JGT, newest, 0, 1), answer}
	case libseccomp.ArchX32:
		return []unix.SockFilter{load(offsetArch), jump(unix.BPF_JEQ, audit, 0, 4), load(offsetNumber), jump(unix.BPF_JSET, x32Bit, 0, 2), jump(unix.BPF_JGT, newest, 0, 1), answer}
	}
	return []unix.SockFilter{load(offsetArch), jump(unix.BPF_JEQ, audit, 0, 3), load(offsetNumber), jump(unix.BPF_JGT, newest, 0, 1), answer}
}
