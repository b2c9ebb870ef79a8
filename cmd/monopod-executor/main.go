//go:build cgo

// Command monopod-executor runs containers for monopod, and outlives it.
//
// It is one binary with several faces: the keeper, which monopod starts; the worker, which the keeper starts; "oci", which the worker
// starts for what libcontainer is to do; and "init", libcontainer's code that becomes a container's first process. (Others never come to this file:
// packages spawn, sitter, podinit and placeholder.) All run from one sealed copy of the binary in
// memory, so that no container can reach the file on the disk, and libcontainer need not make a copy for each.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // its C code runs before main in "init"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/keeper"
	"monopod.dev/monopod/internal/executor/launch"
	"monopod.dev/monopod/internal/executor/ocicmd"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/executor/worker"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/proc"
)

// version is set by the linker.
var version = "devel"

const usage = `usage:
  monopod-executor keeper --socket PATH --dir DIR [--cgroup PATH] [--detach] [--ready-fd N]
  monopod-executor version

monopod starts the keeper by itself. Logs go to stderr.
`

func init() { //nolint:gochecknoinits // libcontainer's way
	// A container's init must get here before anything else does: libcontainer has set its world up already.
	if len(os.Args) > 1 && os.Args[1] == "init" {
		libcontainer.Init()
	}
}

func main() {
	mode := ""
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	err := proc.Hide() // the worker has the environments of all containers
	switch mode {
	case "keeper":
		err = errors.Join(err, runKeeper(os.Args[2:]))
	case "worker":
		err = errors.Join(err, runWorker(os.Args[2:]))
	case "heir":
		err = errors.Join(err, runHeir(os.Args[2:]))
	case "oci":
		os.Exit(ocicmd.Main(os.Args[2:]))
	case "version", "--version":
		fmt.Println("monopod-executor", version)
	case "help", "--help", "-h":
		fmt.Print(usage)
	default:
		fmt.Fprintf(os.Stderr, "monopod-executor: unknown command %q\n%s", mode, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "monopod-executor:", err)
		os.Exit(1)
	}
}

// stderr is where all of the log goes.
var stderr = &ownLog{limit: maxLog}

func newLog(role string) *slog.Logger {
	return slog.New(slog.NewTextHandler(stderr, nil)).With("role", role, "pid", os.Getpid())
}

type keeperFlags struct {
	socket, dir, cgroup string
	detach              bool
	readyFD, inheritFD  int
}

func (f *keeperFlags) parse(args []string) error {
	fs := flag.NewFlagSet("keeper", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&f.socket, "socket", "", "path of the unix socket to serve")
	fs.StringVar(&f.dir, "dir", "", "directory of this boot's state")
	fs.StringVar(&f.cgroup, "cgroup", "", "cgroup to move to")
	fs.BoolVar(&f.detach, "detach", false, "go on in the background, in a session of its own")
	fs.IntVar(&f.readyFD, "ready-fd", -1, "descriptor to which one line is written: ready, running, or an error")
	fs.IntVar(&f.inheritFD, "inherit", -1, "for a process that becomes the keeper: descriptor of what it hands on")
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("%w\n%s", err, usage)
	}
	if f.socket == "" || f.dir == "" || fs.NArg() > 0 {
		return fmt.Errorf("--socket and --dir are needed, and no arguments\n%s", usage)
	}
	return nil
}

// args are the flags that keeper and worker share.
func (f *keeperFlags) args() []string {
	return []string{"--socket", f.socket, "--dir", f.dir, "--cgroup", f.cgroup}
}

func runKeeper(args []string) error {
	var f keeperFlags
	if err := f.parse(args); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("must run as root")
	}
	if err := sealSelf(); err != nil { // it returns in the sealed copy
		return err
	}
	if f.detach {
		return detach(f)
	}
	if f.inheritFD >= 0 {
		signal.Notify(make(chan os.Signal, 1), unix.SIGTERM) // it ends no keeper whose containers run; see keeper.Run
	}
	nameProcess("monopod-keeper")
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(keeperGCPercent)
	report := func(string) {}
	if f.readyFD >= 0 {
		unix.CloseOnExec(f.readyFD)
		pipe := os.NewFile(uintptr(f.readyFD), "ready")
		report = func(line string) { fmt.Fprintln(pipe, line); pipe.Close() }
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		report(err.Error())
		return err
	}
	var estate *hold.Estate
	if f.inheritFD >= 0 {
		var err error
		if estate, err = hold.Inherit(protocol.FD(f.inheritFD)); err != nil {
			return err
		}
	}
	watch, err := time.ParseDuration(cmp.Or(os.Getenv(watchEnv), "0s"))
	if err != nil || watch < 0 {
		err = fmt.Errorf("%s is %q, want how often the worker is asked whether it is there, such as 10s", watchEnv, os.Getenv(watchEnv))
		report(err.Error())
		return err
	}
	err = keeper.Run(context.Background(), keeper.Config{
		Socket: f.socket, Dir: f.dir, Cgroup: f.cgroup, Watch: watch, Estate: estate, Log: newLog("keeper"),
		Worker: append([]string{os.Args[0], "worker"}, f.args()...), Keeper: append([]string{os.Args[0], "keeper"}, f.args()...), Build: version,
		Ready: func() { report(launch.Ready) },
	})
	switch {
	case errors.Is(err, keeper.ErrRunning):
		report(launch.Running)
	case err != nil:
		report(err.Error())
	}
	return err
}

// watchEnv is the environment variable that says how often the keeper asks the worker whether it is there; see keeper.Config.
const watchEnv = "MONOPOD_EXECUTOR_WATCH"

// patienceEnv is the environment variable that says how long the start of a process may take; see worker.Config.
const patienceEnv = "MONOPOD_EXECUTOR_PATIENCE"

// Garbage is collected early in the keeper: it is idle most of the time, and what it holds is what users see. The worker gives memory
// back when it has nothing to do, and may be lazy before: looking through the stacks of all containers' goroutines takes its time.
const (
	keeperGCPercent = 20
	workerGCPercent = 100
)

// detach starts the keeper again, in a session of its own, and leaves it to whoever takes orphans.
func detach(f keeperFlags) error {
	args := append([]string{os.Args[0], "keeper"}, f.args()...)
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	files := []*os.File{null, os.Stdout, os.Stderr}
	if f.readyFD >= 0 {
		args = append(args, "--ready-fd", "3")
		files = append(files, os.NewFile(uintptr(f.readyFD), "ready"))
	}
	p, err := os.StartProcess("/proc/self/exe", args, &os.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return fmt.Errorf("start the keeper in the background: %w", err)
	}
	return p.Release()
}

func runWorker(args []string) error {
	var f keeperFlags // all that a worker needs to know, and to become the keeper
	if err := f.parse(args); err != nil {
		return err
	}
	nameProcess("monopod-worker")
	catchIgnored()
	debug.SetGCPercent(workerGCPercent)
	logrus.SetOutput(stderr) // that of the library of cgroups
	logrus.SetLevel(logrus.WarnLevel)
	patience, err := time.ParseDuration(cmp.Or(os.Getenv(patienceEnv), spawn.DefaultPatience.String()))
	if err != nil || patience <= 0 {
		return fmt.Errorf("%s is %q, want how long the start of a process may take, such as 30s", patienceEnv, os.Getenv(patienceEnv))
	}
	return worker.Run(context.Background(), worker.Config{Dir: f.dir, Build: version, Log: newLog("worker"), StartPatience: patience,
		Keeper: append([]string{os.Args[0], "keeper"}, f.args()...)})
}

// runHeir says whether this program can go on with an estate that is read from standard input; see hold.Heir.
func runHeir(args []string) error {
	fs := flag.NewFlagSet("heir", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	dir := fs.String("dir", "", "directory of this boot's state")
	if err := fs.Parse(args); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(hold.Heir{Build: version, Estate: hold.EstateVersions}); err != nil {
		return err
	}
	raw, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var v hold.Verdict
	if _, err := hold.DecodeEstate(raw); err != nil {
		v.Refused = err.Error()
	} else if err := record.Check(*dir); err != nil {
		v.Refused = err.Error()
	}
	return out.Encode(v)
}

// catchIgnored catches the signals that whoever started Monopod has had ignored (nohup, a script's background job). Containers would
// inherit that; a signal that is caught is at its default again in a program that is executed.
func catchIgnored() {
	for sig := unix.Signal(1); sig < 32; sig++ {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}
