// Command run is `go test` for CI: it runs a test that failed once more, alone, and says whether it is FLAKY.
//
//	run [-id ID -flaky FILE -brief FILE] -- FLAGS OF GO TEST -- PACKAGES
//
// Its output is that of `go test`. A package with a failed test is not closed at once ("ok" or "FAIL"), but after the other packages, when
// the test has run once more with nothing beside it. If it passes then, it is FLAKY: its name and the output of both runs are printed, and it
// is to be mended before other work goes on. One FLAKY test leaves the run green; two of them make it red, as a second failure does.
//
// What is run again is the test function, with all its subtests. When a package failed otherwise, by a panic, a time-out, os.Exit or a
// TestMain that found fault, tests have not had their turn or no test is to blame: then it is the whole package. What could not be built is
// never tried again, and neither is anything when go test itself failed. A test that is skipped, or not found, the second time has failed.
//
// A run of CI may call this command several times: -id names the run, and -flaky is where its FLAKY tests are written down, a line each. What
// failed is added in a few lines to the file of -brief, which is for the end of a long log.
//
// The exit status is 0 when every test passed, or every one but one that is FLAKY; 1 when not; 2 for a wrong command line.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"monopod.dev/monopod/test/gotest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/run:", err)
		os.Exit(2)
	}
	o.out, o.stderr = os.Stdout, os.Stderr
	green, err := o.run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/run:", err)
	}
	if !green || err != nil {
		fmt.Println("FAIL")
		os.Exit(1)
	}
}

type options struct {
	id, file    string
	brief       string // file; empty: none
	dir         string // of go test; empty: here
	flags       []string
	packages    []string
	out, stderr io.Writer
}

func parse(args []string) (o options, err error) {
	own := flag.NewFlagSet("run", flag.ContinueOnError)
	own.StringVar(&o.id, "id", fmt.Sprintf("%d-%d", time.Now().UnixNano(), os.Getpid()), "names the run of CI that this is a part of")
	own.StringVar(&o.file, "flaky", "", "file to which FLAKY tests are added, a line each")
	own.StringVar(&o.brief, "brief", "", "file to which what failed is added, a few lines each")
	if err := own.Parse(args); err != nil {
		return o, err
	}
	rest := own.Args() // without the first "--", which ended the flags
	at := slices.Index(rest, "--")
	if at < 0 || at == len(rest)-1 {
		return o, errors.New("want: run [-id ID -flaky FILE -brief FILE] -- FLAGS OF GO TEST -- PACKAGES")
	}
	o.flags, o.packages = rest[:at], rest[at+1:]
	return o, nil
}

// run runs everything and says whether the run is green.
func (o options) run(ctx context.Context) (green bool, err error) {
	var failed []*gotest.Result
	ended := 0
	cmd := gotest.Command{Dir: o.dir, Flags: o.flags, Packages: o.packages, Stderr: o.stderr}
	status, err := cmd.Run(ctx, func(r *gotest.Result) {
		ended++
		if r.Outcome == gotest.Fail {
			failed = append(failed, r)
		}
		o.printFirst(r)
	})
	switch {
	case err != nil:
		return false, err
	case ctx.Err() != nil:
		return false, errors.Join(fmt.Errorf("interrupted: %w", context.Cause(ctx)), o.closeAll(failed))
	case status == 0 && len(failed) == 0 && ended > 0:
		return true, nil
	case status != 1 || len(failed) == 0:
		return false, errors.Join(fmt.Errorf("go test ended with status %d, %d packages tested and %d of them failed: not all tests have run", status, ended, len(failed)), o.closeAll(failed))
	}
	return o.again(ctx, failed)
}

// printFirst prints what became of a package in the first run. The closing line of one that is tried again comes later.
func (o options) printFirst(r *gotest.Result) {
	if r.Outcome != gotest.Fail {
		fmt.Fprintln(o.out, r.Closing)
		return
	}
	fmt.Fprint(o.out, r.Failure())
	if r.Unbuilt {
		fmt.Fprintln(o.out, r.Closing)
	}
}

// closeAll prints the closing lines of packages that are not tried again after all.
func (o options) closeAll(failed []*gotest.Result) error {
	for _, r := range failed {
		if !r.Unbuilt {
			if _, err := fmt.Fprintln(o.out, r.Closing); err != nil {
				return err
			}
		}
	}
	return nil
}

// again tries what failed once more, each alone, and says whether the run is green all the same.
func (o options) again(ctx context.Context, failed []*gotest.Result) (green bool, err error) {
	attempts, left := plan(failed)
	for i := range attempts {
		a := &attempts[i]
		cmd := gotest.Command{Dir: o.dir, Flags: a.flags(o.flags), Packages: []string{a.first.Package}, Stderr: o.stderr}
		fmt.Fprintf(o.out, "=== once more, alone: %s\n", a)
		if _, err := cmd.Run(ctx, func(r *gotest.Result) { a.second = r }); err != nil {
			return false, err
		}
		a.print(o.out)
	}
	if err := brief(o.brief, attempts); err != nil {
		return false, fmt.Errorf("what failed cannot be written down in brief: %w", err)
	}
	if left > 0 {
		fmt.Fprintf(o.out, "=== not tried again, as the run is red already: %d more that failed\n", left)
	}
	for _, r := range failed {
		if !r.Unbuilt {
			fmt.Fprintln(o.out, closing(r, attempts))
		}
	}
	if ctx.Err() != nil {
		return false, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
	flaky := named(attempts)
	all, err := remember(o.file, o.id, flaky)
	if err != nil {
		return false, fmt.Errorf("FLAKY tests cannot be written down: %w", err)
	}
	if len(all) > 1 {
		fmt.Fprintf(o.out, "=== red: %d FLAKY in one run, one at most is let pass: %q\n", len(all), all)
		return false, nil
	}
	return left == 0 && len(flaky) == len(attempts) && !slices.ContainsFunc(failed, func(r *gotest.Result) bool { return r.Unbuilt }), nil
}
