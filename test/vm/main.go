// Command vm runs a command, or the tests of some packages, in a virtual machine with pure cgroup v2. See README.md.
//
//	go run ./test/vm -test ./internal/host/probe
//	go run ./test/vm -put bin/monopod:/usr/local/bin/monopod -payload DIR -- ./script.sh ARGS...
//
// Its exit code is the command's; 125 when the machine failed, 2 for a wrong command line.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"monopod.dev/monopod/test/vm/guest"
	"monopod.dev/monopod/test/vm/machine"
)

const (
	exitUsage   = 2
	exitMachine = 125
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
	}
	os.Exit(code)
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

type options struct {
	put, tests, env  list
	payload          string
	common           machine.Tests // what all -test packages share
	filter           string
	timeout          time.Duration
	slow             int
	console, prepare bool
	disks            bool
	cfg              machine.Config
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("vm", flag.ContinueOnError)
	flags.StringVar(&o.payload, "payload", "", "directory whose content is put at /payload, where the command runs")
	flags.Var(&o.put, "put", "HOSTPATH:GUESTPATH, a file or directory to put into the machine; may be repeated")
	flags.Var(&o.tests, "test", "package whose tests are run, before the command if there is one; may be repeated")
	flags.StringVar(&o.common.Tags, "tags", "", "build tags for -test")
	flags.BoolVar(&o.common.Cgo, "cgo", false, "build the tests of -test with cgo, linked statically")
	flags.StringVar(&o.filter, "run", "", "regular expression: run only these tests of -test")
	flags.Var(&o.env, "env", "NAME=VALUE for the command; may be repeated")
	flags.DurationVar(&o.timeout, "timeout", 15*time.Minute, "how long the machine may run")
	flags.IntVar(&o.slow, "slow", machine.DefaultSlow, "by how much tests stretch their time-outs ($"+machine.SlowVariable+")")
	flags.BoolVar(&o.cfg.Systemd, "systemd", false, "let systemd be the machine's first process, and the command one of its services")
	flags.Var((*list)(&o.cfg.KernelArgs), "kernel-arg", "further parameter of the kernel; may be repeated")
	flags.BoolVar(&o.disks, "disks", false, "have what tests of disks need: loop devices, quotas, xfs, NFS")
	flags.BoolVar(&o.console, "console", false, "show the kernel's messages")
	flags.BoolVar(&o.prepare, "prepare", false, "only fetch what is needed from Debian, and check that the programs are there")
	flags.IntVar(&o.cfg.MemoryMiB, "memory", 0, "the machine's memory in MiB (default 2048)")
	flags.IntVar(&o.cfg.DiskMiB, "disk", 0, "the machine's disk in MiB, a sparse file (default 8192)")
	flags.IntVar(&o.cfg.CPUs, "cpus", 0, "the machine's processors (default 2)")
	flags.IntVar(&o.cfg.Boots, "boots", 1, "how often the machine may boot; the command is started anew each time, on the same disk")
	flags.StringVar(&o.cfg.Arch, "arch", machine.NativeArch, "the machine's architecture, amd64 or arm64; -test is for amd64")
	flags.DurationVar(&o.cfg.BootTimeout, "boot-timeout", 0, "how long the machine may take to start the command (default 2m)")
	flags.StringVar(&o.cfg.Cache, "cache", machine.DefaultCache(), "where Debian's packages are kept")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.cfg.Job = guest.Job{Args: flags.Args()}
	if len(o.cfg.Job.Args) == 0 && len(o.tests) == 0 && !o.prepare {
		return o, errors.New("nothing to do: give a command, or -test PACKAGE")
	}
	if o.filter != "" {
		o.common.Args = []string{"-test.run=" + o.filter}
	}
	return o, nil
}

func run(ctx context.Context, args []string) (int, error) {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0, nil
	}
	if err != nil {
		return exitUsage, err
	}
	if err := machine.CheckTools(o.cfg.Arch); err != nil {
		return exitMachine, err
	}
	if o.prepare {
		if _, err := machine.Fetch(ctx, o.cfg.Cache, o.cfg.Arch, o.cfg.Systemd); err != nil {
			return exitMachine, err
		}
		return 0, nil
	}
	build, err := os.MkdirTemp("", "monopod-vm-build-")
	if err != nil {
		return exitMachine, err
	}
	defer os.RemoveAll(build)
	if err := o.complete(ctx, build); err != nil {
		return exitMachine, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("the time-out of %s (-timeout) is over", o.timeout))
	defer cancel()
	res, err := machine.Run(ctx, o.cfg)
	if err != nil {
		return exitMachine, err
	}
	o.cfg.Log("exit code %d; disk %.1fs, boot %.1fs, job %.1fs", res.Code, res.Prepare.Seconds(), res.Boot.Seconds(), res.Job.Seconds())
	return res.Code, nil
}

// complete turns the command line into the machine's configuration, and builds what goes into it.
func (o *options) complete(ctx context.Context, build string) (err error) {
	o.cfg.Output = os.Stdout
	o.cfg.Log = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "vm: "+format+"\n", args...) }
	if o.console {
		o.cfg.Console = os.Stderr
	}
	o.cfg.Job.Env = append([]string{machine.SlowVariable + "=" + strconv.Itoa(o.slow)}, o.env...)
	o.cfg.Files = map[string]string{}
	for _, p := range o.put {
		from, to, ok := strings.Cut(p, ":")
		if !ok || !filepath.IsAbs(to) {
			return fmt.Errorf("-put %q: want HOSTPATH:GUESTPATH, the latter absolute", p)
		}
		o.cfg.Files[to] = from
	}
	if o.disks {
		d, err := machine.NewDisks(ctx)
		if err != nil {
			return err
		}
		maps.Copy(o.cfg.Files, d.Files)
		o.cfg.Modules, o.cfg.Job.Env = d.Modules, append(o.cfg.Job.Env, d.Env...)
	}
	if o.payload != "" {
		o.cfg.Files["/payload"] = o.payload
	}
	if o.cfg.Init, err = machine.BuildInit(ctx, build, o.cfg.Arch); err != nil {
		return err
	}
	return o.addTests(ctx, build)
}

// addTests lets the job run the tests of all packages, and then the command if none failed.
func (o *options) addTests(ctx context.Context, build string) error {
	if len(o.tests) == 0 {
		return nil
	}
	script := "failed=0\n"
	for _, pkg := range o.tests {
		t := o.common
		t.Package = pkg
		files, command, err := t.Build(ctx, build)
		if err != nil {
			return err
		}
		maps.Copy(o.cfg.Files, files)
		script += "(" + command + ") || failed=1\n"
	}
	script += "[ $failed = 0 ] || exit 1\n"
	if len(o.cfg.Job.Args) > 0 {
		script += `exec "$@"` + "\n"
	}
	o.cfg.Job.Args = append([]string{"sh", "-c", script, "sh"}, o.cfg.Job.Args...)
	return nil
}
