// Package mountns runs a program that sees folders of ours in the place of some of the host's: one that writes to a fixed path, such as a
// device plugin to /var/lib/kubelet/device-plugins, can be tried out beside whoever really uses that path.
//
// The program gets a mount namespace of its own, which is private: nothing that is mounted in it is seen outside, and it is gone with the last
// process in it. The host is not changed, also where the path does not exist on it: see the function place.
//
// It needs root (CAP_SYS_ADMIN), and it reaches programs that the program starts by itself, not those that it has a daemon start (docker run).
package mountns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/proc"
)

// Folder is what the program sees at Target, an absolute path, in the place of what the host has there, or has not.
type Folder struct{ Source, Target string }

// Config says what is run.
type Config struct {
	// Folders are shown to the program, in this order.
	Folders []Folder
	// Command is the program, as exec.LookPath finds it, and its arguments.
	Command []string
	// Env is the environment; nil: this process's.
	Env []string
	// Output takes what it writes to standard output and error. Its input is empty.
	Output io.Writer
}

// outputPatience is for how long output is waited for when the program has ended and another process has it open.
const outputPatience = time.Second

// Process is a program that runs, or has ended. Its methods are safe for concurrent use. It leads a process group of its own.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}

	namespace string   // as /proc/PID/ns/mnt shows it
	held      *os.File // the namespace: while it is open, its number is not given to another one
	empty     sync.Once
	how       string // how it has ended; set when done is closed
	failed    bool
}

// Start starts the program. It is killed when this process ends without having ended it; what it has started by itself is not then.
//
// Errors: errdefs.ErrPermissionDenied without root.
func Start(cfg Config) (*Process, error) {
	if len(cfg.Command) == 0 {
		return nil, fmt.Errorf("no command to start: %w", errdefs.ErrInvalidArgument)
	}
	p := &Process{done: make(chan struct{})}
	started := make(chan error, 1)
	go onThread(func() { p.run(cfg, started) })
	if err := <-started; err != nil {
		<-p.done
		return nil, err
	}
	return p, nil
}

// onThread calls f on a thread that ends with it, and that is not the process's first: /proc/self shows that one's namespaces.
func onThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f() // still locked when the goroutine ends: so the thread ends, too
		return
	}
	moved := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(moved)
		f()
	}()
	<-moved // locked to this goroutine, the first thread could not be the one
	runtime.UnlockOSThread()
}

// run is the whole life of the program, on a thread of its own: a child is born in the namespaces of the thread that starts it, and is killed when
// that thread ends.
func (p *Process) run(cfg Config, started chan<- error) {
	defer close(p.done)
	if err := p.enter(cfg.Folders); err != nil {
		started <- err
		return
	}
	p.cmd = exec.Command(cfg.Command[0], cfg.Command[1:]...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr, p.cmd.WaitDelay = cfg.Env, cfg.Output, cfg.Output, outputPatience
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	err := p.cmd.Start()
	if err != nil {
		started <- fmt.Errorf("start %s: %w", cfg.Command[0], err)
		return
	}
	started <- nil
	err = p.cmd.Wait()
	p.how, p.failed = p.cmd.ProcessState.String(), err != nil && !errors.Is(err, exec.ErrWaitDelay)
}

// enter moves the calling thread to a mount namespace with the folders.
func (p *Process) enter(folders []Folder) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("make a mount namespace: %w: run it as root: %w", err, errdefs.ErrPermissionDenied)
		}
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	covers := covers{}
	for _, f := range folders {
		if err := covers.place(f); err != nil {
			return fmt.Errorf("show a folder at %s: %w", f.Target, err)
		}
	}
	var err error
	if p.held, err = os.Open("/proc/thread-self/ns/mnt"); err != nil {
		return err
	}
	p.namespace, err = os.Readlink("/proc/thread-self/ns/mnt")
	return err
}

// PID is the program's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended says how it has ended, "exit status 1", and whether that is a failure. It is not called before Done is closed.
func (p *Process) Ended() (how string, failed bool) { return p.how, p.failed }

// Path is where this process finds what the program sees at an absolute path, as long as the program runs.
func (p *Process) Path(seen string) string { return "/proc/" + strconv.Itoa(p.PID()) + "/root" + seen }

// Signal sends the program a signal. One that has ended is no error.
func (p *Process) Signal(sig unix.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to process %d: %w", unix.SignalName(sig), p.PID(), err)
	}
	return nil
}

// Kill ends the program and all other processes in its mount namespace, and waits for that. It returns the names of those that had outlived
// the program. A ctx that ends first is the error. It is called once, at the end: a second call does nothing.
func (p *Process) Kill(ctx context.Context) (outlived []string, err error) {
	p.empty.Do(func() {
		outlived, err = p.kill(ctx)
		p.held.Close()
	})
	return outlived, err
}

func (p *Process) kill(ctx context.Context) (outlived []string, err error) {
	running := true
	select {
	case <-p.done:
		running = false
	default:
	}
	if running {
		if err := p.Signal(unix.SIGKILL); err != nil {
			return nil, err
		}
		select {
		case <-p.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("process %d does not end: %w", p.PID(), ctx.Err())
		}
	}
	for {
		left, err := p.inhabitants()
		if err != nil || len(left) == 0 {
			return outlived, err
		}
		for _, one := range left {
			if !running { // whoever is killed with the program has not outlived it
				outlived = append(outlived, one.name)
			}
			err = errors.Join(err, one.kill(ctx))
		}
		if err != nil {
			return outlived, err
		}
	}
}

// inhabitant is another process in the namespace.
type inhabitant struct {
	fd   *proc.FD
	name string
}

func (i inhabitant) kill(ctx context.Context) error {
	defer i.fd.Close()
	if err := i.fd.Signal(unix.SIGKILL); err != nil {
		return err
	}
	if err := i.fd.Wait(ctx); err != nil {
		return fmt.Errorf("process %d (%s) does not end: %w", i.fd.PID(), i.name, err)
	}
	return nil
}

// inhabitants are the processes in the namespace, without zombies.
func (p *Process) inhabitants() (all []inhabitant, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !p.inhabits(pid) {
			continue
		}
		fd, err := proc.OpenFD(pid)
		if err != nil {
			continue // it has ended
		}
		if !p.inhabits(pid) || fd.Ended() { // the pid may have become another's
			fd.Close()
			continue
		}
		name, _ := os.ReadFile("/proc/" + e.Name() + "/comm")
		all = append(all, inhabitant{fd, fmt.Sprintf("%d (%s)", pid, trimLine(name))})
	}
	return all, nil
}

func (p *Process) inhabits(pid int) bool {
	ns, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/mnt")
	return err == nil && ns == p.namespace
}

func trimLine(b []byte) string {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	return string(b)
}
