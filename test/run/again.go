package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"monopod.dev/monopod/test/gotest"
)

// most is how many attempts are made. Two failures make the run red whatever comes of them; the attempts only tell which are FLAKY.
const most = 5

// attempt is a second run of something that failed.
type attempt struct {
	first    *gotest.Result
	function string // empty: the whole package
	second   *gotest.Result
}

// plan says what is tried again, and how much is left out as too much.
func plan(failed []*gotest.Result) (attempts []attempt, left int) {
	for _, r := range failed {
		switch {
		case r.Unbuilt:
		case r.FailedByTestsAlone():
			for _, f := range r.Failed() {
				attempts = append(attempts, attempt{first: r, function: f})
			}
		default:
			attempts = append(attempts, attempt{first: r})
		}
	}
	if len(attempts) > most {
		attempts, left = attempts[:most], len(attempts)-most
	}
	return attempts, left
}

// String names the attempt as people look for it.
func (a *attempt) String() string {
	if a.function == "" {
		return a.first.Package
	}
	return a.first.Package + " " + a.function
}

// flags are those of the second run: the first one's, without what chose the tests where one function is wanted, and never a kept result.
func (a *attempt) flags(first []string) []string {
	if a.function == "" {
		return append(without(first, "count"), "-count=1")
	}
	return append(without(first, "count", "run", "skip", "shuffle", "bench"), "-count=1", "-run=^"+a.function+"$")
}

// without leaves flags out that take a value, in each form in which the go command takes them.
func without(flags []string, names ...string) []string {
	var kept []string
	for i := 0; i < len(flags); i++ {
		name, _, joined := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(flags[i], "-"), "-"), "=")
		if !strings.HasPrefix(flags[i], "-") || !slices.Contains(names, strings.TrimPrefix(name, "test.")) {
			kept = append(kept, flags[i])
			continue
		}
		if !joined {
			i++ // its value
		}
	}
	return kept
}

// flaky says that what failed has passed: not that it was skipped, or that there was nothing to run.
func (a *attempt) flaky() bool {
	if a.second == nil || a.second.Outcome != gotest.Pass {
		return false
	}
	return !slices.ContainsFunc(a.suspects(), func(f string) bool { return !a.second.Passed(f) })
}

// suspects are the functions that failed, or were running when the process ended.
func (a *attempt) suspects() []string {
	if a.function != "" {
		return []string{a.function}
	}
	return append(a.first.Failed(), a.first.Unfinished()...)
}

// failure is what was printed when it failed first.
func (a *attempt) failure() string {
	if a.function != "" {
		return a.first.OutputOf(a.function)
	}
	return a.first.Failure()
}

// print tells what became of the attempt. The output of a second failure stands for itself; that of a FLAKY test is shown beside the
// first, which may be far above, without that of other tests, which may be long.
func (a *attempt) print(out io.Writer) {
	if a.flaky() {
		var second strings.Builder
		for _, f := range a.suspects() {
			second.WriteString(a.second.OutputOf(f))
		}
		fmt.Fprintf(out, "FLAKY %s: it failed, and passed when it ran once more, alone\n=== what it printed when it failed:\n%s=== what it printed when it passed:\n%s=== end of FLAKY %s\n",
			a, a.failure(), second.String(), a)
		return
	}
	if a.second == nil {
		fmt.Fprintf(out, "=== %s: it could not be run again\n", a)
		return
	}
	fmt.Fprint(out, a.second.Failure())
	switch {
	case a.second.Outcome == gotest.Fail:
		fmt.Fprintf(out, "=== %s: it failed again\n", a)
	default:
		fmt.Fprintf(out, "=== %s: it was skipped or not found this time, which is no success:\n%s", a, a.second.Whole)
	}
}

// closing is the closing line of a package that was tried again: an "ok" names what is FLAKY in it.
func closing(r *gotest.Result, attempts []attempt) string {
	var names []string
	whole := false
	for i := range attempts {
		a := &attempts[i]
		if a.first != r {
			continue
		}
		if !a.flaky() {
			return r.Closing
		}
		whole = whole || a.function == ""
		names = append(names, cmp.Or(a.function, "the package"))
	}
	rest, failed := strings.CutPrefix(r.Closing, "FAIL")
	if len(names) == 0 || !whole && len(names) < len(r.Failed()) || !failed { // some were not tried
		return r.Closing
	}
	return fmt.Sprintf("ok  %s\t[FLAKY: %s]", rest, strings.Join(names, ", "))
}

// named are the names of what is FLAKY.
func named(attempts []attempt) []string {
	var names []string
	for i := range attempts {
		if attempts[i].flaky() {
			names = append(names, attempts[i].String())
		}
	}
	return names
}
