// Command all runs the tests of all packages that touch the host in virtual machines with pure cgroup v2: `make test-vm-all`. See ../README.md.
//
//	go run ./test/vm/all                                # all of them
//	go run ./test/vm/all -run Lifecycle ./internal/executor
//
// Standard output has a line for each package, the output of the tests that failed, and a summary with every test that was skipped and
// why. The exit code is 0 when every test passed or was skipped, 1 when one failed or did not run, 2 for a wrong command line.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"monopod.dev/monopod/test/vm/machine"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm/all:", err)
	}
	os.Exit(code)
}

type options struct {
	patterns []string
	filter   string
	tags     string
	cgo      string // packages, as the go command takes them, separated by spaces
	logs     string
	machines int
	slow     int
	timeout  time.Duration
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("all", flag.ContinueOnError)
	flags.StringVar(&o.filter, "run", "", "regular expression: run only these tests")
	flags.StringVar(&o.tags, "tags", "seccomp netgo osusergo", "build tags of the packages that need cgo")
	flags.StringVar(&o.cgo, "cgo", "./cmd/monopod-executor ./internal/executor/...", "packages that need cgo")
	flags.StringVar(&o.logs, "logs", "_out/vm", "directory for the whole output of each package")
	flags.IntVar(&o.machines, "machines", 2, "how many machines run at a time")
	flags.IntVar(&o.slow, "slow", 2*machine.DefaultSlow, "by how much tests stretch their time-outs ($"+machine.SlowVariable+")")
	flags.DurationVar(&o.timeout, "timeout", 90*time.Minute, "how long the tests of one package may take")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.patterns = flags.Args(); len(o.patterns) == 0 {
		o.patterns = []string{"./..."}
	}
	if o.machines < 1 {
		return o, fmt.Errorf("-machines %d: want one at least", o.machines)
	}
	return o, nil
}

func run(ctx context.Context, args []string) (code int, err error) {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0, nil
	}
	if err != nil {
		return 2, err
	}
	begin := time.Now()
	build, err := os.MkdirTemp("", "monopod-vm-all-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(build)) }()
	if err := os.MkdirAll(o.logs, 0o755); err != nil {
		return 1, err
	}
	packages, left, err := choose(ctx, o)
	if err != nil {
		return 1, err
	}
	if len(packages) == 0 {
		return 1, fmt.Errorf("%s: nothing that is run in the machine:\n%s", strings.Join(o.patterns, " "), list(left))
	}
	f, err := gather(ctx, build)
	if err != nil {
		return 1, err
	}
	r := &report{out: os.Stdout, logs: o.logs}
	runAll(ctx, o, f, filepath.Join(build, "tests"), divide(packages), r)
	return r.summary(time.Since(begin), o.machines, left), context.Cause(ctx)
}
