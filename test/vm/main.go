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
	"os"
	"os/exec"
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

// factorVariable tells tests how many times slower than a real machine this one may be: multiply time-outs by it.
const factorVariable = "MONOPOD_TIMEOUT_FACTOR"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
	}
	stop()
	os.Exit(code)
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

type options struct {
	put, tests, env list
	payload, tags   string
	cgo             bool
	timeout         time.Duration
	factor          int
	console         bool
	prepare         bool
	cfg             machine.Config
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("vm", flag.ContinueOnError)
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	flags.StringVar(&o.payload, "payload", "", "directory whose content is put at /payload, where the command runs")
	flags.Var(&o.put, "put", "HOSTPATH:GUESTPATH, a file or directory to put into the machine; may be repeated")
	flags.Var(&o.tests, "test", "package whose tests are run, before the command if there is one; may be repeated")
	flags.StringVar(&o.tags, "tags", "", "build tags for -test")
	flags.BoolVar(&o.cgo, "cgo", false, "build the tests of -test with cgo, linked statically")
	flags.Var(&o.env, "env", "NAME=VALUE for the command; may be repeated")
	flags.DurationVar(&o.timeout, "timeout", 15*time.Minute, "how long the machine may run")
	flags.IntVar(&o.factor, "factor", 10, "by how much time-outs are stretched in the machine ($"+factorVariable+")")
	flags.BoolVar(&o.console, "console", false, "show the kernel's messages")
	flags.BoolVar(&o.prepare, "prepare", false, "only fetch what is needed from Debian, and check that the programs are there")
	flags.IntVar(&o.cfg.MemoryMiB, "memory", 2048, "the machine's memory in MiB")
	flags.IntVar(&o.cfg.DiskMiB, "disk", 8192, "the machine's disk in MiB (a sparse file)")
	flags.IntVar(&o.cfg.CPUs, "cpus", 2, "the machine's processors")
	flags.StringVar(&o.cfg.Cache, "cache", filepath.Join(cache, "monopod-vm"), "where Debian's packages are kept")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.cfg.Job = guest.Job{Args: flags.Args()}
	if len(o.cfg.Job.Args) == 0 && len(o.tests) == 0 && !o.prepare {
		return o, errors.New("nothing to do: give a command, or -test PACKAGE")
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
	if err := machine.CheckTools(); err != nil {
		return exitMachine, err
	}
	if o.prepare {
		_, err := machine.Fetch(ctx, o.cfg.Cache)
		if err != nil {
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
func (o *options) complete(ctx context.Context, build string) error {
	o.cfg.Output = os.Stdout
	o.cfg.Log = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "vm: "+format+"\n", args...) }
	if o.console {
		o.cfg.Console = os.Stderr
	}
	o.cfg.Job.Env = append(list{"MONOPOD_TEST_VM=1", factorVariable + "=" + strconv.Itoa(o.factor)}, o.env...)
	o.cfg.Files = map[string]string{}
	for _, p := range o.put {
		from, to, ok := strings.Cut(p, ":")
		if !ok || !filepath.IsAbs(to) {
			return fmt.Errorf("-put %q: want HOSTPATH:GUESTPATH, the latter absolute", p)
		}
		o.cfg.Files[to] = from
	}
	if o.payload != "" {
		o.cfg.Files["/payload"] = o.payload
	}
	o.cfg.Init = filepath.Join(build, "init")
	if err := goTool(ctx, []string{"CGO_ENABLED=0"}, "build", "-trimpath", "-ldflags=-s -w", "-o", o.cfg.Init, "monopod.dev/monopod/test/vm/init"); err != nil {
		return err
	}
	return o.addTests(ctx, build)
}

// testsDir is where the packages under test are in the machine.
const testsDir = "/tests"

// addTests builds the tests, lays each out beside its package's testdata, and runs them all before the command.
func (o *options) addTests(ctx context.Context, build string) error {
	if len(o.tests) == 0 {
		return nil
	}
	env, args := []string{"CGO_ENABLED=0"}, []string{"test", "-c", "-tags=" + o.tags}
	if o.cgo {
		env, args = []string{"CGO_ENABLED=1"}, append(args, "-ldflags=-linkmode external -extldflags -static")
	}
	script := "failed=0\n"
	for i, pkg := range o.tests {
		dir, err := goOutput(ctx, "list", "-f", "{{.Dir}}", pkg)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%02d-%s", i, filepath.Base(dir))
		binary := filepath.Join(build, name)
		if err := goTool(ctx, env, append(args, "-o", binary, pkg)...); err != nil {
			return err
		}
		at := filepath.Join(testsDir, name)
		o.cfg.Files[filepath.Join(at, filepath.Base(dir)+".test")] = binary
		if testdata := filepath.Join(dir, "testdata"); isDir(testdata) {
			o.cfg.Files[filepath.Join(at, "testdata")] = testdata
		}
		script += fmt.Sprintf("echo '=== %s'; (cd %s && ./%s.test -test.v -test.timeout=%s) || failed=1\n", pkg, at, filepath.Base(dir), o.timeout)
	}
	script += "[ $failed = 0 ] || exit 1\n"
	if len(o.cfg.Job.Args) > 0 {
		script += `exec "$@"` + "\n"
	}
	o.cfg.Job.Args = append([]string{"sh", "-c", script, "sh"}, o.cfg.Job.Args...)
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func goTool(ctx context.Context, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

func goOutput(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
