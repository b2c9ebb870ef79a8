package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/sealed"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// heir is a program that can go on as the keeper.
type heir struct {
	program *os.File // sealed
	hold.Heir
	version int // of the estate that both know
	env     []string
}

// heirPatience bounds how long a program may take to say whether it can go on.
const heirPatience = 30 * time.Second

// prepare makes a program ready to be executed in the keeper's place, and asks it whether it can go on with what is held.
func (k *keeper) prepare(ctx context.Context, req hold.PrepareRequest, program *os.File) (hold.PrepareResponse, error) {
	if len(k.cfg.Keeper) == 0 {
		return hold.PrepareResponse{}, fmt.Errorf("%w: this keeper cannot go on as another program", errdefs.ErrNotImplemented)
	}
	copied, err := sealed.Copy(program)
	if err != nil {
		return hold.PrepareResponse{}, fmt.Errorf("copy the program to memory: %w", err)
	}
	h := &heir{program: copied, env: req.Env}
	if err := k.examine(ctx, h); err != nil {
		copied.Close()
		return hold.PrepareResponse{}, err
	}
	if err := failpoint.Hit("executor/keeper/prepared"); err != nil {
		copied.Close()
		return hold.PrepareResponse{}, err
	}
	k.setHeir(h)
	k.log.Info("another program is ready to go on as the keeper", "build", h.Build, "estate", h.version)
	return hold.PrepareResponse{Build: h.Build}, nil
}

// setHeir replaces the heir; nil: there is none.
func (k *keeper) setHeir(h *heir) {
	k.mu.Lock()
	old := k.heir
	k.heir = h
	k.mu.Unlock()
	if old != nil {
		old.program.Close()
	}
}

// examine runs the program for its range of versions and its verdict.
func (k *keeper) examine(ctx context.Context, h *heir) (err error) {
	ctx, cancel := context.WithTimeout(ctx, heirPatience)
	defer cancel()
	inR, inW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer inW.Close()
	outR, outW, err := os.Pipe()
	if err != nil {
		inR.Close()
		return err
	}
	defer outR.Close()
	pidfd := -1
	// It is reaped with all other children, so os.Process is used for nothing but the start.
	p, err := os.StartProcess(sealed.Path(int(h.program.Fd())), []string{k.cfg.Keeper[0], "heir", "--dir", k.cfg.Dir},
		&os.ProcAttr{Dir: "/", Env: h.env, Files: []*os.File{inR, outW, os.Stderr}, Sys: &syscall.SysProcAttr{PidFD: &pidfd}})
	inR.Close()
	outW.Close()
	if err != nil {
		return fmt.Errorf("%w: the program cannot be executed: %w", errdefs.ErrFailedPrecondition, err)
	}
	_ = p.Release()
	stop := context.AfterFunc(ctx, func() {
		past := time.Unix(1, 0)
		_, _ = outR.SetReadDeadline(past), inW.SetWriteDeadline(past) // pipes have deadlines
	})
	defer stop()
	defer func() {
		if pidfd >= 0 {
			if err != nil {
				_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0) // it may have ended
			}
			unix.Close(pidfd)
		}
	}()
	lines := bufio.NewReaderSize(outR, 64<<10)
	if err := say(lines, &h.Heir); err != nil {
		return fmt.Errorf("%w: the program does not say which estates it can go on with: it may be of before handovers: %w", errdefs.ErrFailedPrecondition, err)
	}
	version, ok := hold.EstateVersions.Common(h.Estate)
	if !ok {
		return fmt.Errorf("%w: build %s goes on with estates of versions %s, and this one (%s) leaves such of versions %s: take a build between the two, or reboot the machine",
			errdefs.ErrFailedPrecondition, h.Build, h.Estate, k.cfg.Build, hold.EstateVersions)
	}
	h.version = version
	e, done, err := k.estate()
	if err != nil {
		return err
	}
	raw, err := e.Encode(version)
	done()
	if err != nil {
		return err
	}
	if _, err := inW.Write(raw); err != nil {
		return fmt.Errorf("%w: build %s does not read the estate: %w", errdefs.ErrFailedPrecondition, h.Build, err)
	}
	inW.Close()
	var v hold.Verdict
	if err := say(lines, &v); err != nil {
		return fmt.Errorf("%w: build %s does not say whether it can go on: %w", errdefs.ErrFailedPrecondition, h.Build, err)
	}
	if v.Refused != "" {
		return fmt.Errorf("%w: build %s cannot go on: %s", errdefs.ErrFailedPrecondition, h.Build, v.Refused)
	}
	return nil
}

// say reads one line.
func say(r *bufio.Reader, v any) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

// estate is all that this process has. Nothing of it changes until done is called.
func (k *keeper) estate() (e *hold.Estate, done func(), err error) {
	e = &hold.Estate{Build: k.cfg.Build}
	var made []protocol.FD // duplicates
	k.held.mu.Lock()
	done = func() {
		protocol.CloseFDs(made)
		k.held.mu.Unlock()
	}
	dup := func(what string, f syscall.Conn) protocol.FD {
		fd, derr := dupConn(f)
		if derr != nil {
			err = errors.Join(err, fmt.Errorf("duplicate the %s: %w", what, derr))
			return fd
		}
		made = append(made, fd)
		return fd
	}
	e.Listener = dup("socket", k.listener)
	lock := dup("lock", k.lock)
	e.Lock = &lock
	k.mu.Lock()
	switch {
	case k.retired != nil:
		e.Worker = &hold.Retired{PID: k.retired.pid, Channel: dup("retired worker's channel", k.retired.channel)}
	case k.worker != 0 && k.channel != nil:
		e.Worker = &hold.Retired{PID: k.worker, Channel: dup("worker's channel", k.channel)}
	}
	k.mu.Unlock()
	if self, oerr := os.Open("/proc/self/exe"); oerr == nil {
		program := dup("program", self)
		e.Program = &program
		self.Close()
	} else {
		err = errors.Join(err, oerr)
	}
	for key, h := range k.held.byKey {
		b := hold.Bequest{Holding: hold.Holding{Key: key, PID: h.pid, StartTime: h.startTime, Names: []string{}}, FDs: []protocol.FD{}, Exit: h.exit}
		for name, fd := range h.fds {
			b.Names, b.FDs = append(b.Names, name), append(b.FDs, fd)
		}
		e.Holdings = append(e.Holdings, b)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return e, done, nil
}

// dupConn is protocol.DupFile for all that has a descriptor.
func dupConn(c syscall.Conn) (protocol.FD, error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	dup, derr := -1, error(nil)
	if err := rc.Control(func(fd uintptr) { dup, derr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) }); err != nil {
		return -1, err
	}
	return protocol.FD(dup), derr
}

// handOver makes this process the heir's program. It returns only if that fails.
func (k *keeper) handOver() error {
	k.mu.Lock()
	h := k.heir
	k.mu.Unlock()
	if h == nil {
		return fmt.Errorf("%w: there is no program to go on as", errdefs.ErrFailedPrecondition)
	}
	defer k.setHeir(nil)
	if err := failpoint.Hit("executor/keeper/committed"); err != nil {
		return err
	}
	fd := int(h.program.Fd())
	return k.become(fd, h.version, h.env, func(*hold.Estate) {})
}

// become executes a program in this one's place. It returns only if that fails.
func (k *keeper) become(program, version int, env []string, change func(*hold.Estate)) error {
	e, done, err := k.estate()
	if err != nil {
		return err
	}
	defer done()
	change(e)
	mem, undo, err := e.Bequeath(version)
	if err != nil {
		return err
	}
	defer undo()
	// A signal that comes before the program has its handlers is to be overlooked, not to end it.
	signal.Ignore(unix.SIGTERM)
	defer signal.Notify(k.terminate, unix.SIGTERM)
	args := slices.Concat(k.cfg.Keeper, []string{"--inherit", fmt.Sprint(int(mem))})
	return fmt.Errorf("execute the program: %w", syscall.Exec(sealed.Path(program), args, env))
}

// inherit takes over what another program has left to this one, which it has executed in its place.
func (k *keeper) inherit(e *hold.Estate) {
	k.held.restore(e.Holdings)
	if e.Program != nil {
		k.former = e.Program.File("the former program")
	}
	if e.Worker != nil {
		k.retired = &retired{pid: e.Worker.PID, channel: e.Worker.Channel.File("the former worker's channel")}
	}
}

// retired is the worker of the former program, our unreaped child. It has stopped to work, and waits for its end. Until then it makes this process's
// death good, because the channel between them ends with it; so it is ended only when this program's worker has all, and can do that.
type retired struct {
	pid     int
	channel *os.File
}

// retiredPID is 0 where there is none.
func (k *keeper) retiredPID() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.retired == nil {
		return 0
	}
	return k.retired.pid
}

// answer is where the loop of run answers a worker's request.
type answer chan error

// ask hands a request to the loop of run.
func (k *keeper) ask(ctx context.Context, requests chan<- answer) error {
	a := make(answer, 1)
	select {
	case requests <- a:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-a:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin lets the worker begin that has all, when nobody else is there.
func (k *keeper) begin(a answer) {
	pid := k.retiredPID()
	if pid == 0 {
		a <- nil
		return
	}
	if err := failpoint.Hit("executor/keeper/retiring"); err != nil {
		k.giveBack(err)
		a <- err
		return
	}
	k.beginning = a
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) { // its children become this process's
		k.beginning = nil
		a <- fmt.Errorf("end the worker of the former program: %w", err)
	}
}

// alone is called when the worker of the former program has ended.
func (k *keeper) alone() {
	k.mu.Lock()
	k.retired.channel.Close()
	k.retired = nil
	k.mu.Unlock()
	err := failpoint.Hit("executor/keeper/retired")
	if err != nil {
		k.giveBack(err)
	}
	if k.beginning != nil {
		k.beginning <- err
		k.beginning = nil
	}
}

// maxFirstDeaths is how many workers may die, before the first one serves, until the former program is gone back to.
const maxFirstDeaths = 3

// giveBack makes this process the program again from which it has its estate. It returns if that fails, or if there is none.
func (k *keeper) giveBack(why error) {
	if k.former == nil {
		return
	}
	k.log.Error("this program cannot go on: its predecessor does", "build", k.cfg.Build, "error", why)
	if k.retiredPID() != 0 { // then this program's worker has not begun
		if err := k.signalWorker(unix.SIGKILL); err != nil {
			k.log.Error("this program's worker cannot be ended", "error", err)
		}
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, failpoint.EnvVar+"=") })
	// It does not come back to this one, whatever happens to it.
	err := k.become(int(k.former.Fd()), hold.EstateVersion, env, func(e *hold.Estate) { e.Program = nil })
	k.log.Error("the predecessor cannot be gone back to", "error", err)
}

// settled forgets what is needed for going back only.
func (k *keeper) settled() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.former != nil {
		k.former.Close()
		k.former = nil
	}
}
