//go:build cgo

package spawn

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/opencontainers/runc/libcontainer/configs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// filter is a compiled seccomp profile.
type filter struct {
	program []unix.SockFilter
	flags   uint32

	once sync.Once
	born [2]bool // see letsBeBorn: without a terminal, and with one
}

// keptFilters bounds how many compiled profiles are kept. A node has few: the default one in a handful of variants (by
// capabilities), and those of its users.
const keptFilters = 32

// filters compiles profiles, each once: the library takes about 20 ms for the default one.
type filters struct {
	mu   sync.Mutex
	kept map[[sha256.Size]byte]*filter
	same map[*configs.Seccomp]*filter // of profiles that callers share among containers, which they do not change
}

func (f *filters) get(profile *configs.Seccomp) (*filter, error) {
	if profile == nil {
		return &filter{}, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock() // also while it compiles: others most likely wait for the same one
	if c, ok := f.same[profile]; ok {
		return c, nil
	}
	c, err := f.byContent(profile)
	if err != nil {
		return nil, err
	}
	if f.same == nil || len(f.same) >= keptFilters {
		f.same = map[*configs.Seccomp]*filter{}
	}
	f.same[profile] = c
	return c, nil
}

// byContent finds an equal profile's, or compiles it. It is called with the lock held.
func (f *filters) byContent(profile *configs.Seccomp) (*filter, error) {
	raw, err := json.Marshal(profile)
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(raw)
	if c, ok := f.kept[key]; ok {
		return c, nil
	}
	c, err := compile(profile)
	if err != nil {
		return nil, fmt.Errorf("seccomp profile: %w", err)
	}
	if f.kept == nil {
		f.kept = map[[sha256.Size]byte]*filter{}
	}
	for other := range f.kept {
		if len(f.kept) < keptFilters {
			break
		}
		delete(f.kept, other)
	}
	f.kept[key] = c
	return c, nil
}

// compile makes the kernel's program of a profile.
func compile(profile *configs.Seccomp) (*filter, error) {
	byDefault, err := actionOf(profile.DefaultAction, profile.DefaultErrnoRet)
	if err != nil {
		return nil, fmt.Errorf("default action: %w", err)
	}
	lib, err := libseccomp.NewFilter(byDefault)
	if err != nil {
		return nil, err
	}
	defer lib.Release()
	for _, name := range profile.Architectures {
		arch, err := libseccomp.GetArchFromString(name)
		if err != nil {
			return nil, fmt.Errorf("architecture %s: %w", name, err)
		}
		if err := lib.AddArch(arch); err != nil {
			return nil, fmt.Errorf("architecture %s: %w", name, err)
		}
	}
	flags, err := flagsOf(profile.Flags)
	if err != nil {
		return nil, err
	}
	const large = 32 // below, the library's tree is no faster, and older versions of it fail without any rule
	if len(profile.Syscalls) > large {
		_ = lib.SetOptimize(2) // a faster filter, where the library can
	}
	for _, call := range profile.Syscalls {
		if call == nil {
			return nil, errors.New("a null in syscalls")
		}
		if err := addCall(lib, call, byDefault); err != nil {
			return nil, fmt.Errorf("syscall %s: %w", call.Name, err)
		}
	}
	program, err := export(lib)
	if err != nil {
		return nil, err
	}
	unknown, err := unknownCalls(profile)
	if err != nil {
		return nil, err
	}
	program = append(unknown, program...)
	const most = 4096 // BPF_MAXINSNS
	if len(program) > most {
		return nil, fmt.Errorf("it compiles to %d instructions, the kernel takes %d", len(program), most)
	}
	return &filter{program: program, flags: flags}, nil
}

func actionOf(a configs.Action, errnoRet *uint) (libseccomp.ScmpAction, error) {
	code := int16(unix.EPERM)
	if errnoRet != nil {
		code = int16(*errnoRet)
	}
	switch a {
	case configs.Kill, configs.KillThread:
		return libseccomp.ActKillThread, nil
	case configs.KillProcess:
		return libseccomp.ActKillProcess, nil
	case configs.Errno:
		return libseccomp.ActErrno.SetReturnCode(code), nil
	case configs.Trace:
		return libseccomp.ActTrace.SetReturnCode(code), nil
	case configs.Trap:
		return libseccomp.ActTrap, nil
	case configs.Allow:
		return libseccomp.ActAllow, nil
	case configs.Log:
		return libseccomp.ActLog, nil
	}
	return libseccomp.ActInvalid, fmt.Errorf("action %d is not known", a)
}

var operators = map[configs.Operator]libseccomp.ScmpCompareOp{
	configs.EqualTo: libseccomp.CompareEqual, configs.NotEqualTo: libseccomp.CompareNotEqual,
	configs.GreaterThan: libseccomp.CompareGreater, configs.GreaterThanOrEqualTo: libseccomp.CompareGreaterEqual,
	configs.LessThan: libseccomp.CompareLess, configs.LessThanOrEqualTo: libseccomp.CompareLessOrEqual,
	configs.MaskEqualTo: libseccomp.CompareMaskedEqual,
}

func addCall(lib *libseccomp.ScmpFilter, call *configs.Syscall, byDefault libseccomp.ScmpAction) error {
	if call.Name == "" {
		return errors.New("it has no name")
	}
	action, err := actionOf(call.Action, call.ErrnoRet)
	if err != nil {
		return err
	}
	if action == byDefault {
		return nil // the library takes it for a mistake
	}
	number, err := libseccomp.GetSyscallFromName(call.Name)
	if err != nil {
		return nil // newer than the library, or of another architecture: the default holds
	}
	if len(call.Args) == 0 {
		return lib.AddRule(number, action)
	}
	var conditions []libseccomp.ScmpCondition
	seen := map[uint]bool{}
	twice := false
	for _, arg := range call.Args {
		if arg == nil {
			return errors.New("a null in args")
		}
		op, ok := operators[arg.Op]
		if !ok {
			return fmt.Errorf("operator %d is not known", arg.Op)
		}
		c, err := libseccomp.MakeCondition(arg.Index, op, arg.Value, arg.ValueTwo)
		if err != nil {
			return err
		}
		conditions = append(conditions, c)
		twice = twice || seen[arg.Index]
		seen[arg.Index] = true
	}
	if !twice {
		return lib.AddRuleConditional(number, action, conditions)
	}
	// One argument in several conditions is, by convention, a list of alternatives.
	for _, c := range conditions {
		if err := lib.AddRuleConditional(number, action, []libseccomp.ScmpCondition{c}); err != nil {
			return err
		}
	}
	return nil
}

func flagsOf(names []specs.LinuxSeccompFlag) (flags uint32, err error) {
	for _, n := range names {
		switch n {
		case "SECCOMP_FILTER_FLAG_TSYNC": // there is one thread
		case specs.LinuxSeccompFlagLog:
			flags |= unix.SECCOMP_FILTER_FLAG_LOG
		case specs.LinuxSeccompFlagSpecAllow:
			flags |= unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
		default:
			return 0, fmt.Errorf("flag %s is not known", n)
		}
	}
	return flags, nil
}

// export reads the program that the library makes.
func export(lib *libseccomp.ScmpFilter) ([]unix.SockFilter, error) {
	fd, err := unix.MemfdCreate("filter", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "filter")
	defer f.Close()
	if err := lib.ExportBPF(f); err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	const size = 8
	if len(raw)%size != 0 {
		return nil, fmt.Errorf("the library made %d bytes, which are no instructions", len(raw))
	}
	program := make([]unix.SockFilter, len(raw)/size)
	return program, binary.Read(bytes.NewReader(raw), binary.NativeEndian, program)
}
