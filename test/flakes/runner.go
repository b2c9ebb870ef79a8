package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"monopod.dev/monopod/internal/kit/atomicfile"
	"monopod.dev/monopod/test/gotest"
)

// runner runs rounds.
type runner struct {
	options
	store  store
	failed map[string]bool // in this call
}

// all runs rounds until all are done, the time is over, or ctx ends, which is no error: what was counted stays counted.
func (r *runner) all(ctx context.Context, packages []pkg) (err error) {
	if !r.idle {
		load, err := startLoad()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, load.stop()) }()
	}
	begin := time.Now()
	for ctx.Err() == nil && (r.length == 0 || time.Since(begin) < r.length) {
		t, err := r.store.read() // each time: others may count, too
		if err != nil {
			return err
		}
		p, some := next(t, packages, r.failed, r.rounds)
		if !some {
			return nil
		}
		changed, err := r.round(ctx, p)
		if err != nil {
			return err
		}
		if changed {
			if packages, err = r.find(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// round runs the tests of a package once and counts the round, if it came to its end and the package is still what was run.
func (r *runner) round(ctx context.Context, p pkg) (changed bool, err error) {
	seed := strconv.FormatInt(rand.Int64(), 10)
	result, output, err := r.test(ctx, p, seed)
	if err != nil {
		return false, err
	}
	switch {
	case ctx.Err() != nil:
		return false, nil
	case result == nil || result.Unbuilt:
		return false, fmt.Errorf("%s is not built:\n%s", p.Path, output)
	}
	single := r.options
	single.patterns = []string{p.Path}
	if now, err := single.find(ctx); err != nil || len(now) != 1 || now[0].Key != p.Key {
		fmt.Fprintf(r.out, "not counted: %s has changed since the last round\n", p.Path)
		return true, err
	}
	return false, r.count(ctx, p, seed, result, output)
}

// count notes a round that came to its end.
func (r *runner) count(ctx context.Context, p pkg, seed string, result *gotest.Result, output string) error {
	var f *failure
	if result.Outcome == gotest.Fail {
		f = &failure{At: time.Now().UTC().Truncate(time.Second), Commit: r.commit(ctx), Seed: seed, Tests: append(result.Failed(), result.Unfinished()...), Log: r.store.logPath(p, seed)}
		if err := os.MkdirAll(filepath.Dir(f.Log), 0o755); err != nil {
			return err
		}
		if err := atomicfile.Write(f.Log, []byte(output), 0o644); err != nil { // before the tally names it
			return err
		}
		r.failed[p.Path] = true
	}
	clean := 0
	if err := r.store.change(func(t *tally) {
		t.count(p, r.commit(ctx), time.Now().UTC().Truncate(time.Second), f)
		clean = t.of(p).Clean
	}); err != nil {
		return err
	}
	if f != nil {
		fmt.Fprintf(r.out, "%s%s\nseed %s, tests %s, output in %s\n", result.Failure(), result.Closing, seed, strings.Join(f.Tests, " "), f.Log)
		return nil
	}
	fmt.Fprintf(r.out, "%s\tround %d of %d\n", result.Closing, clean, wanted(p, r.rounds))
	return nil
}

// test runs the tests of a package, shuffled by the seed, and short: the rounds are the repetition.
func (r *runner) test(ctx context.Context, p pkg, seed string) (result *gotest.Result, output string, err error) {
	var said strings.Builder
	cmd := gotest.Command{Dir: r.dir, Env: []string{"CGO_ENABLED=0"}, Stderr: &said, Packages: []string{p.Path},
		Flags: []string{"-count=1", "-p=1", "-short", "-shuffle=" + seed, "-timeout=" + r.timeout}}
	if p.Cgo {
		cmd.Env, cmd.Flags = []string{"CGO_ENABLED=1"}, append(cmd.Flags, "-tags="+r.tags)
	}
	if _, err = cmd.Run(ctx, func(res *gotest.Result) { result = res }); err != nil {
		return nil, "", err
	}
	if result == nil {
		return nil, said.String(), nil
	}
	head := fmt.Sprintf("%s go %s\n", strings.Join(cmd.Env, " "), strings.Join(quoted(cmd.Args()), " "))
	return result, head + said.String() + result.Whole + result.Closing + "\n", nil
}

// quoted are arguments as a shell takes them.
func quoted(args []string) []string {
	args = slices.Clone(args)
	for i, a := range args {
		if strings.ContainsAny(a, " '") {
			args[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return args
}

// commit names the checkout's state for people.
func (r *runner) commit(ctx context.Context) string {
	cmd := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12")
	cmd.Dir = r.dir
	out, err := cmd.Output()
	if err != nil {
		return "no commit" // not a checkout
	}
	return strings.TrimSpace(string(out))
}
