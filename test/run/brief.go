package main

import (
	"fmt"
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
// and what tests said there in their own words, not what they took over from a log. A panic comes last and is not left out.
func gist(output string) (lines []string) {
	left := 0
	for line := range strings.Lines(output) {
		text := strings.TrimSpace(line)
		closing := strings.HasPrefix(text, "--- FAIL: ") || strings.HasPrefix(text, "--- UNFINISHED: ")
		crash := strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ")
		said := strings.Contains(text, "_test.go:") && !strings.Contains(text, " level=")
		if !closing && !crash && !said {
			continue
		}
		if len(lines) >= briefLines && !crash {
			left++
			continue
		}
		if len(text) > briefBytes {
			text = text[:briefBytes] + "..."
		}
		lines = append(lines, "    "+text)
	}
	if left > 0 {
		lines = append(lines, fmt.Sprintf("    (and %d lines more)", left))
	}
	return lines
}
