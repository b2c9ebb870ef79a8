// Command flakes runs tests again and again, shuffled, beside a load on all processors, and keeps a tally that survives it: `make flakes`.
//
//	flakes [-rounds N] [-time D] [-tags TAGS] [-cgo PACKAGES] [-forget REASON] [PACKAGES]
//
// A round of a package is clean when all of its tests have passed. The packages with the fewest clean rounds go first. What is wanted of
// all are three clean rounds, and twenty of each that starts containers (facts.go says how that is known), or -rounds of each.
//
// Rounds are counted for what a package is built from (facts.go), not for a commit: a change voids the rounds of the packages that it
// changes and of no others. A failure voids the clean rounds of its package. It stays listed, with the seed that repeats it and the file that has
// the whole output, until the package changes, which is what mending it does; -forget takes the failures of the named packages
// from the list, where the machine was at fault, and writes the reason down.
//
// The tally is in $XDG_STATE_HOME/monopod/flakes (~/.local/state/monopod/flakes), so that it outlives `make clean`, `git clean` and this
// checkout, and serves others of the same machine. Several of this command may run side by side. A round that is cut short does not count.
//
// The exit status is 0 when no failure is listed, whether all rounds are done or the time was over; 1 when one is; 2 for a wrong command line.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == burnCommand {
		burn()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/flakes:", err)
		os.Exit(2)
	}
	clean, err := o.run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/flakes:", err)
	}
	if !clean || err != nil {
		os.Exit(1)
	}
}

type options struct {
	rounds   int // -1: three, and twenty where containers are started
	length   time.Duration
	tags     string
	cgo      []string
	forget   string
	state    string
	timeout  string
	patterns []string
	dir      string // of the module; empty: here
	idle     bool   // without the load
	out      io.Writer
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("flakes", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", -1, "clean rounds that are wanted of each package; 0 shows the tally (default 3, and 20 of packages that start containers)")
	flags.DurationVar(&o.length, "time", 0, "begin no round after this long (default: until all are done)")
	flags.StringVar(&o.tags, "tags", "seccomp netgo osusergo", "build tags of the packages that need cgo")
	cgo := flags.String("cgo", "./cmd/monopod-executor ./internal/executor/...", "packages that need cgo")
	flags.StringVar(&o.forget, "forget", "", "take the failures of the named packages from the list, for this reason")
	flags.StringVar(&o.state, "state", "", "directory of the tally (default $XDG_STATE_HOME/monopod/flakes)")
	flags.StringVar(&o.timeout, "timeout", "60m", "how long a round of a package may take")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.cgo, o.patterns, o.out = strings.Fields(*cgo), flags.Args(), os.Stdout
	if len(o.patterns) == 0 {
		o.patterns = []string{"./..."}
	}
	if o.rounds < -1 {
		return o, fmt.Errorf("-rounds %d: want 0 or more", o.rounds)
	}
	if o.forget != "" && flags.NArg() == 0 {
		return o, errors.New("-forget: name the packages whose failures are the machine's")
	}
	if o.state == "" {
		home, err := os.UserHomeDir()
		if err != nil && os.Getenv("XDG_STATE_HOME") == "" {
			return o, fmt.Errorf("where the tally is: %w; -state names a directory", err)
		}
		o.state = filepath.Join(cmp.Or(os.Getenv("XDG_STATE_HOME"), filepath.Join(home, ".local", "state")), "monopod", "flakes")
	}
	return o, nil
}

// run does what the command line says, and says whether no failure is listed of the packages.
func (o options) run(ctx context.Context) (clean bool, err error) {
	s := store{dir: o.state}
	packages, err := o.find(ctx)
	if err != nil {
		return false, err
	}
	if o.forget != "" {
		if err := s.change(func(t *tally) { t.forget(packages, o.forget) }); err != nil {
			return false, err
		}
	}
	if o.rounds != 0 && o.forget == "" {
		r := runner{options: o, store: s, failed: map[string]bool{}}
		if err := r.all(ctx, packages); err != nil {
			return false, err
		}
		if packages, err = o.find(context.WithoutCancel(ctx)); err != nil { // as they are now
			return false, err
		}
	}
	t, err := s.read()
	if err != nil {
		return false, err
	}
	return printTable(o.out, t, packages), nil
}
