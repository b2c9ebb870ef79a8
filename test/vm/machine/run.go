package machine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"monopod.dev/monopod/test/vm/guest"
)

// SlowVariable tells tests, by the environment, how many times they are to stretch their time-outs; DefaultSlow is a
// good value for emulation.
const (
	SlowVariable = "MONOPOD_TEST_SLOW"
	DefaultSlow  = 10
)

// DefaultCache is a directory for Config.Cache.
func DefaultCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "monopod-vm")
}

// Config is one run of a machine.
type Config struct {
	// Arch is the machine's architecture, amd64 or arm64; empty is NativeArch. Init and the programs among Files are of it.
	Arch string
	// Cache is the directory for what is fetched from Debian.
	Cache string
	// Init is the binary of ../init, statically linked.
	Init string
	// Files are what to put on the root disk, host path by absolute guest path. A directory is copied with what is in it.
	Files map[string]string
	// Modules are kernel modules to load, with what they depend on, beside those that a node needs.
	Modules []string
	// KernelArgs are further parameters of the kernel.
	KernelArgs []string
	// Job is what to run. Empty Dir is /payload.
	Job guest.Job
	// Systemd: the machine's first process is systemd, the job one of its services; else there is nothing but the job.
	Systemd bool
	// Output receives what the job prints.
	Output io.Writer
	// Log receives progress, a line at a time; nil: nobody.
	Log func(format string, args ...any)
	// Console, when not nil, receives the kernel's messages as they come.
	Console io.Writer
	// MemoryMiB, DiskMiB and CPUs are the machine's size; 0 is 2048, 8192 and 2.
	MemoryMiB, DiskMiB, CPUs int
	// BootTimeout bounds the time until the job starts, 0 is two minutes. A machine that takes longer is started once more. The job itself is
	// bounded by Run's context.
	BootTimeout time.Duration
	// Boots is how often the machine may boot, 0 is once: one that restarts has ended. Else it boots again, with its disk as the restart has
	// left it, and the job is started anew; whether it was there before it has to find out by what is on the disk.
	Boots int
}

// Result is how a run went.
type Result struct {
	// Code is the job's exit code, or 128 plus the number of the signal that ended it.
	Code int
	// Prepare is the time for the disk, Boot that from the machine's start to the job's first start, Job that from there to its end.
	Prepare, Boot, Job time.Duration
	// Guest is the job's time by the machine's own clock, since the last boot.
	Guest time.Duration
	// CPU is the time of processors that the emulator took. It tells more than the others where something else runs beside.
	CPU time.Duration
}

func (c *Config) setDefaults() {
	for _, d := range []struct {
		field *int
		value int
	}{{&c.MemoryMiB, 2048}, {&c.DiskMiB, 8192}, {&c.CPUs, 2}, {&c.Boots, 1}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.BootTimeout == 0 {
		c.BootTimeout = 2 * time.Minute
	}
	if c.Job.Dir == "" {
		c.Job.Dir = "/payload"
	}
	c.Job.Systemd = c.Systemd
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
}

// Run boots a machine, runs the job in it, and returns when the machine is gone. An error means that the job did not run to
// its end; a job that fails is a Result.
func Run(ctx context.Context, cfg Config) (Result, error) {
	cfg.setDefaults()
	if len(cfg.Job.Args) == 0 {
		return Result{}, errors.New("no command to run in the machine")
	}
	if err := CheckTools(cfg.Arch); err != nil {
		return Result{}, err
	}
	res, err := run(ctx, cfg)
	// The emulator itself may hang: a kernel was seen to say nothing at all. Nothing of the job has run then.
	if down := (*notUpError)(nil); errors.As(err, &down) && ctx.Err() == nil {
		cfg.Log("it is started once more: %v", err)
		res, err = run(ctx, cfg)
	}
	return res, err
}

// notUpError says that a machine did not start its job in time.
type notUpError struct{ timeout time.Duration }

func (e *notUpError) Error() string {
	return fmt.Sprintf("the job had not started after %s", e.timeout)
}

// run makes a disk and boots a machine with it, once.
func run(ctx context.Context, cfg Config) (Result, error) {
	begin := time.Now()
	work, err := os.MkdirTemp("", "monopod-vm-")
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(work)
	debian, err := prepare(ctx, cfg, work)
	if err != nil {
		return Result{}, err
	}
	prepared := time.Since(begin)
	cfg.Log("disk made in %.1fs; booting Linux %s", prepared.Seconds(), debian.Release)
	res, err := boot(ctx, cfg, work, debian)
	res.Prepare = prepared
	return res, err
}

// Names of files in the working directory.
const (
	ramdiskFile = "ramdisk"
	diskFile    = "disk"
)

func prepare(ctx context.Context, cfg Config, work string) (Debian, error) {
	debian, err := Fetch(ctx, cfg.Cache, cfg.Arch, cfg.Systemd)
	if err != nil {
		return debian, err
	}
	mods, err := openModules(debian.Modules)
	if err != nil {
		return debian, err
	}
	files, err := mods.resolve(slices.Concat(bootModules, nodeModules, cfg.Modules)...)
	if err != nil {
		return debian, err
	}
	if err := writeRamdisk(filepath.Join(work, ramdiskFile), cfg.Init, files); err != nil {
		return debian, err
	}
	applets, err := busyboxApplets(ctx, cfg.Cache)
	if err != nil {
		return debian, err
	}
	root := filepath.Join(work, "root")
	if err := stageRoot(root, debian.Busybox, applets, cfg.Files, cfg.Job); err != nil {
		return debian, err
	}
	if cfg.Systemd {
		if err := stageSystemd(root, debian.Systemd, cfg.Init); err != nil {
			return debian, err
		}
	}
	if err := makeDisk(ctx, filepath.Join(work, diskFile), root, cfg.DiskMiB, cfg.Boots > 1); err != nil {
		return debian, err
	}
	return debian, os.RemoveAll(root)
}

// port is the host's end of a virtio-serial port: qemu connects to its socket.
type port struct {
	name string
	l    net.Listener
}

func listen(work, name string) (*port, error) {
	l, err := net.Listen("unix", filepath.Join(work, name))
	return &port{name, l}, err
}

func (p *port) args(id string) []string {
	return []string{"-chardev", fmt.Sprintf("socket,id=%s,path=%s", id, p.l.Addr()), "-device", fmt.Sprintf("virtserialport,chardev=%s,name=%s", id, p.name)}
}

// copy hands what comes over the port to f, until the machine closes it.
func (p *port) copy(f func(io.Reader)) {
	conn, err := p.l.Accept()
	if err != nil {
		return // closed: the machine has ended before it connected
	}
	defer conn.Close()
	f(conn)
}

func boot(ctx context.Context, cfg Config, work string, debian Debian) (Result, error) {
	events, err := listen(work, guest.EventPort)
	if err != nil {
		return Result{}, err
	}
	defer events.l.Close()
	output, err := listen(work, guest.OutputPort)
	if err != nil {
		return Result{}, err
	}
	defer output.l.Close()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	arch, err := archOf(cfg.Arch)
	if err != nil {
		return Result{}, err
	}
	qemu, err := lookTool(arch.qemu)
	if err != nil {
		return Result{}, err
	}
	console := &tail{copy: cfg.Console}
	cmd := exec.CommandContext(ctx, qemu, append(arguments(cfg, arch, work, debian), append(events.args("events"), output.args("output")...)...)...)
	cmd.Stdout, cmd.Stderr = console, console
	begin := time.Now()
	ended, err := start(cmd)
	if err != nil {
		return Result{}, err
	}
	w := &watch{begin: begin, log: cfg.Log, most: cfg.Boots, started: make(chan struct{}), exited: make(chan struct{}), tooOften: make(chan struct{})}
	var copying sync.WaitGroup
	copying.Go(func() { events.copy(w.read) })
	copying.Go(func() { output.copy(func(r io.Reader) { _, _ = io.Copy(cfg.Output, r) }) })
	over := superviseUntilEnd(ctx, cfg, w, ended)
	cancel() // it may hang while it switches itself off
	if over == nil {
		<-ended
	}
	events.l.Close()
	output.l.Close()
	copying.Wait()
	res, err := w.result(ctx, cfg, over, console)
	if ended := cmd.ProcessState; ended != nil {
		res.CPU = ended.UserTime() + ended.SystemTime()
	}
	return res, err
}

// start starts the machine so that it cannot outlive this process, not even one that is killed. The signal comes when the
// thread that forked ends, so that thread is held until the machine has ended.
func start(cmd *exec.Cmd) (ended <-chan error, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, waited := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			waited <- cmd.Wait()
		}
	}()
	return waited, <-started
}

// powerOffTimeout is how long a machine whose job is done may take to switch itself off.
const powerOffTimeout = 10 * time.Second

// errMachineEnded says that qemu ended by itself.
type errMachineEnded struct{ err error }

func (e *errMachineEnded) Error() string { return fmt.Sprintf("the machine ended (%v)", e.err) }

// superviseUntilEnd waits for the job's end and then the machine's, or for a time-out. It returns nil when the machine
// still runs.
func superviseUntilEnd(ctx context.Context, cfg Config, w *watch, ended <-chan error) *errMachineEnded {
	booting := time.NewTimer(cfg.BootTimeout)
	defer booting.Stop()
	started, exited := w.started, w.exited
	var off <-chan time.Time
	for {
		select {
		case err := <-ended:
			return &errMachineEnded{err}
		case <-ctx.Done():
			return nil
		case <-booting.C:
			return nil
		case <-off:
			return nil
		case <-w.tooOften:
			return nil
		case <-started:
			booting.Stop()
			started = nil
		case <-exited:
			booting.Stop()
			exited = nil
			off = time.After(powerOffTimeout)
		}
	}
}

func arguments(cfg Config, arch arch, work string, debian Debian) []string {
	restart := "shutdown"
	if cfg.Boots > 1 {
		restart = "reset"
	}
	return append(slices.Clone(arch.arguments),
		"-smp", strconv.Itoa(cfg.CPUs), "-m", strconv.Itoa(cfg.MemoryMiB),
		"-nodefaults", "-no-user-config", "-action", "reboot="+restart, "-display", "none", "-serial", "stdio",
		"-kernel", debian.Kernel, "-initrd", filepath.Join(work, ramdiskFile),
		"-append", arch.kernelArgs+tscArg(cfg.Arch)+" panic=-1 mitigations=off cgroup_no_v1=all systemd.log_target=kmsg systemd.log_level=notice systemd.show_status=false"+strings.Join(append([]string{""}, cfg.KernelArgs...), " "),
		"-drive", "if=none,id=root,format=raw,cache=unsafe,discard=unmap,file="+filepath.Join(work, diskFile),
		"-device", "virtio-blk-pci,drive=root",
		"-device", "virtio-serial-pci",
	)
}

// watch follows a machine's events.
type watch struct {
	begin           time.Time
	log             func(format string, args ...any)
	most            int // boots
	started, exited chan struct{}
	tooOften        chan struct{} // closed when it boots once more

	mu    sync.Mutex
	boots int
	boot  time.Duration
	exit  *guest.Event
	job   time.Duration
	up    float64 // seconds of the machine's clock at the job's last start
}

func (w *watch) read(r io.Reader) {
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		var e guest.Event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			w.log("an event that cannot be read: %q", sc.Text())
			continue
		}
		w.mu.Lock()
		since := time.Since(w.begin)
		switch {
		case e.Kind == guest.Started:
			w.boots++
			w.up = e.Uptime
			w.log("job started %.1fs after the machine (%.1fs of the guest's clock)", since.Seconds(), e.Uptime)
			switch w.boots {
			case 1:
				w.boot = since
				close(w.started)
			case w.most + 1:
				close(w.tooOften)
			}
		case e.Kind == guest.Exited && w.exit == nil:
			w.exit, w.job = &e, since-w.boot
			close(w.exited)
		}
		w.mu.Unlock()
	}
}

func (w *watch) result(ctx context.Context, cfg Config, ended *errMachineEnded, console *tail) (Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.exit != nil && w.exit.Error == "" {
		return Result{Code: w.exit.Code, Boot: w.boot, Job: w.job, Guest: time.Duration((w.exit.Uptime - w.up) * float64(time.Second))}, nil
	}
	what := errors.New("the job was running")
	switch {
	case w.exit != nil:
		what = errors.New("init: " + w.exit.Error)
	case w.boot == 0 && ended == nil && time.Since(w.begin) >= cfg.BootTimeout:
		what = &notUpError{cfg.BootTimeout}
	case w.boot == 0:
		what = errors.New("the job had not started")
	case w.boots > w.most:
		what = fmt.Errorf("the machine booted more than %d times", w.most)
	}
	var why error = errors.New("it was stopped")
	if ended != nil {
		why = ended
	} else if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		why = cause
	}
	return Result{Boot: w.boot}, fmt.Errorf("%w: %w; the end of the machine's console:\n%s", what, why, console.last(100))
}

// tail keeps the end of what is written to it.
type tail struct {
	copy io.Writer // nil: nobody

	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.buf = append(t.buf, p...)
	if keep := 64 << 10; len(t.buf) > 2*keep {
		t.buf = append([]byte(nil), t.buf[len(t.buf)-keep:]...)
	}
	t.mu.Unlock()
	if t.copy != nil {
		return t.copy.Write(p)
	}
	return len(p), nil
}

func (t *tail) last(lines int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(t.buf), "\r", "")), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
