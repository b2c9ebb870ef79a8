package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// printTable prints the tally of packages as they are now, and says whether no failure is listed.
func printTable(out io.Writer, t *tally, packages []pkg) (clean bool) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "\nPACKAGE\tCLEAN\tWANTED\tFAILURES\tCOMMIT")
	whole, done := -1, 0
	var failures []string
	for _, p := range packages {
		e, want := t.of(p), wanted(p, -1)
		listed := e.listed()
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\n", strings.TrimPrefix(p.Path, ours+"/"), e.Clean, want, len(listed), e.Commit)
		if whole < 0 || e.Clean < whole {
			whole = e.Clean
		}
		if e.Clean >= want && len(listed) == 0 {
			done++
		}
		for _, f := range listed {
			failures = append(failures, fmt.Sprintf("FLAKY %s %s\n  %s at %s, -shuffle=%s\n  %s", p.Path, strings.Join(f.Tests, " "), f.At.Format("2006-01-02 15:04"), f.Commit, f.Seed, f.Log))
		}
	}
	_ = w.Flush() // a terminal that has gone
	fmt.Fprintf(out, "whole rounds: %d, %d wanted; packages done: %d of %d\n", max(whole, 0), wantOfAll, done, len(packages))
	for _, f := range failures {
		fmt.Fprintln(out, f)
	}
	return len(failures) == 0
}
