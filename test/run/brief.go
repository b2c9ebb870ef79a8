package main

import (
	"fmt"
	"slices"
	"strings"
)

// Of a failure that much is told in brief.
const (
	briefLines = 12
	briefBytes = 300 // of a line
)

// brief adds what failed to a file, a few lines each: a log of CI is long, several runs side by side have written it, and what is kept of it
// may be its end.
func brief(path string, attempts []attempt) error {
	if path == "" {
		return nil
	}
	var all strings.Builder
	for i := range attempts {
		a := &attempts[i]
		what := "failed twice"
		if a.flaky() {
			what = "FLAKY"
		}
		fmt.Fprintf(&all, "=== %s: %s\n", what, a)
		for _, line := range gist(a.failure()) {
			fmt.Fprintln(&all, line)
		}
	}
	return add(path, all.String())
}

// gist are the lines of a test's output that tell why it failed: those at which the testing package, or the runtime for a panic, says so,
// and what the tests that failed said in their own words, not what they took over from a log, nor what subtests said that passed. Where
// there are too many, it is the first and the last ones. A panic comes last and is not left out.
func gist(output string) (lines []string) {
	var panics []string
	passed := false // a subtest, whose lines these are
	for line := range strings.Lines(output) {
		text := strings.TrimSpace(line)
		crash := strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ")
		closing := strings.HasPrefix(text, "--- ")
		if closing {
			passed = strings.HasPrefix(text, "--- PASS: ") || strings.HasPrefix(text, "--- SKIP: ")
		}
		_, said, own := strings.Cut(text, "_test.go:")
		_, said, _ = strings.Cut(said, ": ") // behind the line's number
		own = own && !strings.HasPrefix(said, "time=") && !strings.HasPrefix(said, "level=")
		if !crash && (passed || !closing && !own) {
			continue
		}
		if len(text) > briefBytes {
			text = text[:briefBytes] + "..."
		}
		if crash {
			panics = append(panics, "    "+text)
			continue
		}
		lines = append(lines, "    "+text)
	}
	if left := len(lines) - briefLines; left > 0 {
		const half = briefLines / 2
		lines = slices.Concat(lines[:half], []string{fmt.Sprintf("    (%d lines more)", left)}, lines[len(lines)-half:])
	}
	return append(lines, panics...)
}
