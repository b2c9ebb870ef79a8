//go:build cgo

package spawn

import (
	"encoding/binary"
	"testing"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// profileOf is the default profile for a container with these capabilities, without what the kernel asks for it.
func profileOf(t testing.TB, caps ...string) *configs.Seccomp {
	t.Helper()
	spec := &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: caps}}, Linux: &specs.Linux{}}
	profile, err := specconv.SetupSeccomp(seccomp.DefaultProfile(spec))
	if err != nil {
		t.Fatal(err)
	}
	return profile
}

// machine runs a program as the kernel does.
type machine struct {
	t  testing.TB
	vm *bpf.VM
}

func newMachine(t testing.TB, program []unix.SockFilter) *machine {
	t.Helper()
	var raw []bpf.RawInstruction
	for _, i := range program {
		raw = append(raw, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	code, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the program has instructions that are none")
	}
	vm, err := bpf.NewVM(code)
	if err != nil {
		t.Fatal(err)
	}
	return &machine{t, vm}
}

// call returns the verdict about a call: struct seccomp_data, whose words are big-endian here, as the virtual machine loads them.
func (m *machine) call(arch, number uint32, args ...uint64) uint32 {
	m.t.Helper()
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[0:], number)
	binary.BigEndian.PutUint32(data[4:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[16+8*i:], uint32(a)) // the low word comes first on the architectures here
		binary.BigEndian.PutUint32(data[20+8*i:], uint32(a>>32))
	}
	verdict, err := m.vm.Run(data)
	if err != nil {
		m.t.Fatal(err)
	}
	return uint32(verdict)
}

func TestFilter(t *testing.T) {
	const (
		x86_64, i386 = unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_I386
		allow        = unix.SECCOMP_RET_ALLOW
		eperm        = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		enosys       = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	)
	if native := binary.NativeEndian.Uint16([]byte{1, 0}); native != 1 || unix.SYS_READ != 0 {
		t.Skip("the numbers below are those of x86_64")
	}
	var f filters
	plain, err := f.get(profileOf(t))
	if err != nil {
		t.Fatal(err)
	}
	admin, err := f.get(profileOf(t, "CAP_SYS_ADMIN"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		f            *filter
		arch, number uint32
		args         []uint64
		want         uint32
	}{
		{"read", plain, x86_64, unix.SYS_READ, nil, allow},
		{"mount", plain, x86_64, unix.SYS_MOUNT, nil, eperm},
		{"mount by an administrator", admin, x86_64, unix.SYS_MOUNT, nil, allow},
		{"clone of a thread", plain, x86_64, unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD}, allow},
		{"clone into a user namespace", plain, x86_64, unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER}, eperm},
		{"clone3, whose flags a filter cannot see", plain, x86_64, unix.SYS_CLONE3, nil, enosys},
		{"personality", plain, x86_64, unix.SYS_PERSONALITY, []uint64{0}, allow},
		{"another personality", plain, x86_64, unix.SYS_PERSONALITY, []uint64{0x0400000}, eperm},
		{"a high word counts", plain, x86_64, unix.SYS_PERSONALITY, []uint64{1 << 32}, eperm},
		{"a call of tomorrow", plain, x86_64, 5000, nil, enosys},
		{"read of a 32-bit program", plain, i386, 3, nil, allow},
		{"mount of a 32-bit program", plain, i386, 21, nil, eperm},
		{"a 32-bit call of tomorrow", plain, i386, 5000, nil, enosys},
	} {
		if got := newMachine(t, c.f.program).call(c.arch, c.number, c.args...); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
	if got := newMachine(t, plain.program).call(unix.AUDIT_ARCH_S390X, 1); got == allow {
		t.Error("an architecture that the profile does not name is allowed")
	}
	again, err := f.get(profileOf(t))
	if err != nil || again != plain {
		t.Errorf("the profile was compiled again (%v)", err)
	}
}

// All that the begin of the program does is to answer to calls that the profile cannot have known.
func TestUnknownCalls(t *testing.T) {
	profile := profileOf(t)
	whole, err := compile(profile)
	if err != nil {
		t.Fatal(err)
	}
	begin, err := unknownCalls(profile)
	if err != nil {
		t.Fatal(err)
	}
	with, without := newMachine(t, whole.program), newMachine(t, whole.program[len(begin):])
	for _, arch := range []uint32{unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_AARCH64} {
		for number := range uint32(1000) {
			if a, b := with.call(arch, number), without.call(arch, number); a != b && a != returnENOSYS {
				t.Errorf("architecture %#x, call %d: %#x, without the begin %#x", arch, number, a, b)
			}
		}
		if a, b := with.call(arch, x32Bit|3), without.call(arch, x32Bit|3); arch == unix.AUDIT_ARCH_X86_64 && a != b {
			t.Errorf("a call of the x32 ABI: %#x, without the begin %#x", a, b)
		}
	}
	for name, change := range map[string]func(*configs.Seccomp){
		"allows":          func(s *configs.Seccomp) { s.DefaultAction = configs.Allow },
		"answers already": func(s *configs.Seccomp) { s.DefaultErrnoRet = new(uint(unix.ENOSYS)) },
	} {
		p := *profile
		change(&p)
		if begin, err := unknownCalls(&p); err != nil || len(begin) > 0 {
			t.Errorf("%s: %d instructions, %v", name, len(begin), err)
		}
	}
}

func TestBadFilters(t *testing.T) {
	for name, p := range map[string]*configs.Seccomp{
		"architecture": {DefaultAction: configs.Allow, Architectures: []string{"vax"}},
		"flag":         {DefaultAction: configs.Allow, Flags: []specs.LinuxSeccompFlag{"SECCOMP_FILTER_FLAG_TOMORROW"}},
		"a null":       {DefaultAction: configs.Allow, Syscalls: []*configs.Syscall{nil}},
		"no name":      {DefaultAction: configs.Allow, Syscalls: []*configs.Syscall{{Action: configs.Kill}}},
		"action":       {DefaultAction: configs.Action(99)},
		"argument":     {DefaultAction: configs.Allow, Syscalls: []*configs.Syscall{{Name: "read", Action: configs.Kill, Args: []*configs.Arg{{Index: 9, Op: configs.EqualTo}}}}},
		"operator":     {DefaultAction: configs.Allow, Syscalls: []*configs.Syscall{{Name: "read", Action: configs.Kill, Args: []*configs.Arg{{Op: 99}}}}},
	} {
		if _, err := compile(p); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Conditions on one argument are alternatives, on several they all count.
func TestConditions(t *testing.T) {
	p := &configs.Seccomp{DefaultAction: configs.Errno, Syscalls: []*configs.Syscall{
		{Name: "socket", Action: configs.Allow, Args: []*configs.Arg{{Index: 0, Value: 1, Op: configs.EqualTo}, {Index: 0, Value: 2, Op: configs.EqualTo}}},
		{Name: "kill", Action: configs.Allow, Args: []*configs.Arg{{Index: 0, Value: 1, Op: configs.EqualTo}, {Index: 1, Value: 9, Op: configs.GreaterThan}}},
	}}
	f, err := compile(p)
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, f.program)
	arch := auditArchs[nativeArch(t)]
	for _, c := range []struct {
		number uint32
		args   []uint64
		allow  bool
	}{{unix.SYS_SOCKET, []uint64{1}, true}, {unix.SYS_SOCKET, []uint64{2}, true}, {unix.SYS_SOCKET, []uint64{3}, false},
		{unix.SYS_KILL, []uint64{1, 10}, true}, {unix.SYS_KILL, []uint64{1, 9}, false}, {unix.SYS_KILL, []uint64{2, 10}, false}} {
		if got := m.call(arch, c.number, c.args...) == unix.SECCOMP_RET_ALLOW; got != c.allow {
			t.Errorf("call %d %v: allowed %t, want %t", c.number, c.args, got, c.allow)
		}
	}
}
