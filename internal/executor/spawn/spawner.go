//go:build cgo

package spawn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/ids"
)

// Spawner starts processes. Methods are safe for concurrent use.
type Spawner struct {
	ctx      context.Context // ends with this process's work: nobody waits for processes that hang any more
	patience time.Duration
	zygote   *zygote
	host     hostHierarchies
	canMknod bool
	filters  filters
}

// New prepares what all starts have in common. scratch is a directory that exists; nothing is left in it. An error means that this kernel
// cannot do what is needed. The zygote ends with ctx. A start takes no longer than patience.
func New(ctx context.Context, scratch string, patience time.Duration) (_ *Spawner, err error) {
	s := &Spawner{ctx: ctx, patience: patience, zygote: &zygote{sock: -1}}
	defer func() {
		if err != nil {
			s.zygote.close()
		}
	}()
	if s.host, err = findHierarchies(); err != nil {
		return nil, err
	}
	s.canMknod = canMknod(scratch)
	for i, open := range []func() (int, error){func() (int, error) { return newEmpty(scratch) }, openProc, openNull} {
		fd, err := open()
		if err != nil {
			return nil, err
		}
		s.zygote.files[i] = os.NewFile(uintptr(fd), "zygote")
	}
	context.AfterFunc(ctx, s.zygote.close)
	return s, nil
}

func openProc() (int, error) {
	fd, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: "/proc", Err: err}
	}
	return fd, nil
}

// openNull makes a read-only mount of the host's /dev/null: a process that has it open can write to it all the same, but not change its mode
// or owner, which would be the host's.
func openNull() (int, error) {
	fd, err := clone(os.DevNull)
	if err != nil {
		return -1, err
	}
	if err := setAttr(fd, false, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("%s: %w", os.DevNull, err)
	}
	return fd, nil
}

// canMknod says whether this host lets device nodes be made.
func canMknod(scratch string) bool {
	probe := filepath.Join(scratch, "mknod-probe")
	_ = unix.Unlink(probe)
	err := unix.Mknod(probe, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
	_ = unix.Unlink(probe)
	return err == nil
}

// ProgramError says that the program cannot be executed, or must not be because a poststart hook has failed: there is no process, and all else
// was well.
type ProgramError struct{ Text string }

func (e *ProgramError) Error() string { return e.Text }

// Stdio are the process's ends of its streams; nil is /dev/null. They stay the caller's.
type Stdio struct{ In, Out, Err *os.File }

// Start is a container's first process.
type Start struct {
	ID      ids.ContainerID
	Config  *configs.Config
	Process *libcontainer.Process
	Stdio   Stdio
	// Terminal gives the process a terminal instead of Stdio.
	Terminal bool
	// Cgroups are the container's cgroup directories, which exist and have their limits and device rules, as its cgroup manager names them.
	Cgroups map[string]string
	// Gate is the descriptor that the process waits at.
	Gate *os.File
}

// Start makes a container's namespaces and mounts, and a process in it that waits at the gate before it executes the program. What has to
// be done to the process from outside (its score) can be done until then. It takes no longer than ctx lasts.
func (s *Spawner) Start(ctx context.Context, r Start) (*Child, error) {
	filter, err := s.filters.get(r.Config.Seccomp)
	if err != nil {
		return nil, err
	}
	trees, err := s.host.of(r.Cgroups)
	if err != nil {
		return nil, err
	}
	p, err := planFor(r.Config, r.Process, filter, r.Terminal)
	if err != nil {
		return nil, err
	}
	p.flags |= flagTell
	if err := placeFor(p, r.Config, trees, s.canMknod); err != nil {
		return nil, err
	}
	if !r.Config.NoNewKeyring {
		p.keyring, p.keyKeep, p.keyNew = "_ses."+string(r.ID), 0xffffffff, keySearch
	}
	member, err := openMembership(r.Cgroups)
	if err != nil {
		return nil, err
	}
	defer member.close()
	b := birth{spawner: s, plan: p, stdio: r.Stdio, member: member, gate: r.Gate, target: -1, newPIDs: newPIDs(r.Config.Namespaces)}
	return b.bear(ctx)
}

// keySearch lets a process of the same user find the session keyring (KEY_USR_SEARCH): the container's further processes.
const keySearch = 0x80000

// Kept is what further processes need of a container's configuration. It is small, and shares its filter with others.
type Kept struct {
	config *configs.Config
	filter *filter
}

// Keep returns what further processes in a container need.
func (s *Spawner) Keep(c *configs.Config) (*Kept, error) {
	filter, err := s.filters.get(c.Seccomp)
	if err != nil {
		return nil, err
	}
	return &Kept{filter: filter, config: &configs.Config{Umask: c.Umask, Capabilities: c.Capabilities, NoNewPrivileges: c.NoNewPrivileges,
		NoNewKeyring: c.NoNewKeyring, ProcessLabel: c.ProcessLabel, AppArmorProfile: c.AppArmorProfile, Rlimits: c.Rlimits, OomScoreAdj: c.OomScoreAdj}}, nil
}

// Config is the part of the container's configuration that is kept.
func (k *Kept) Config() *configs.Config { return k.config }

// Exec is a further process in a container.
type Exec struct {
	ID      ids.ContainerID
	Kept    *Kept
	Process *libcontainer.Process
	Stdio   Stdio
	// Terminal gives the process a terminal instead of Stdio.
	Terminal bool
	Cgroups  map[string]string
	// InitPID and InitFD are the container's first process, whose namespaces the process joins.
	InitPID, InitFD int
	Gate            *os.File
}

// Exec makes a process in a container that waits at the gate before it executes the program. It takes no longer than ctx lasts.
func (s *Spawner) Exec(ctx context.Context, r Exec) (*Child, error) {
	p, err := planFor(r.Kept.config, r.Process, r.Kept.filter, r.Terminal)
	if err != nil {
		return nil, err
	}
	if !r.Kept.config.NoNewKeyring {
		p.keyring = "_ses." + string(r.ID)
	}
	member, err := openMembership(r.Cgroups)
	if err != nil {
		return nil, err
	}
	defer member.close()
	b := birth{spawner: s, plan: p, stdio: r.Stdio, member: member, gate: r.Gate, target: r.InitFD}
	child, err := b.bear(ctx)
	if errors.Is(err, unix.EBUSY) && member.into >= 0 {
		// The container has divided its cgroup, and processes can only be in its parts: that of its first process will do.
		return s.execBeside(ctx, r)
	}
	return child, err
}

// execBeside is Exec into the cgroup of the container's first process, on version 2.
func (s *Spawner) execBeside(ctx context.Context, r Exec) (*Child, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", r.InitPID))
	if err != nil {
		return nil, err
	}
	own, ok := strings.CutPrefix(strings.TrimSpace(string(raw)), "0::")
	if !ok {
		return nil, fmt.Errorf("cgroup of process %d: %q", r.InitPID, raw)
	}
	dir := "/sys/fs/cgroup" + own
	if dir == r.Cgroups[""] || !strings.HasPrefix(dir, r.Cgroups[""]+"/") {
		return nil, fmt.Errorf("cgroup %s of process %d is not below the container's %s: %w", dir, r.InitPID, r.Cgroups[""], unix.EBUSY)
	}
	r.Cgroups = map[string]string{"": dir}
	return s.Exec(ctx, r)
}
