package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// report gathers what became of each package, and prints it.
type report struct {
	out  io.Writer
	logs string // directory for the whole output of each package, as it comes

	mu      sync.Mutex
	results []result
}

// result is what became of one package.
type result struct {
	pkg     string
	took    time.Duration
	failure error // nil: it passed
	tests   []*testResult
	// loose is what was printed outside of any test.
	loose []string
}

// testResult is what became of a test or of a case of one.
type testResult struct {
	name, action string // action: pass, fail, skip, or empty when it did not end
	output       []string
}

// event is a line of what test2json prints (go doc test2json).
type event struct {
	Action, Test, Output string
}

// add reports a package that has ended, or that will not.
func (r *report) add(p testPackage, output []byte, took time.Duration, failure error) {
	res := result{pkg: p.name, took: took, failure: failure}
	if err := res.read(output); err != nil && res.failure == nil {
		res.failure = err
	}
	if res.failure == nil && res.count("pass")+res.count("skip") == 0 && !bytes.Contains(output, []byte("testing: warning: no tests to run")) {
		res.failure = errors.New("it ended with 0, and no test said that it passed")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, res)
	fmt.Fprint(r.out, res.text())
}

// read understands what a package's tests have printed (-test.v=test2json).
func (r *result) read(output []byte) error {
	cmd := exec.Command("go", "tool", "test2json")
	cmd.Stdin = bytes.NewReader(output)
	raw, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go tool test2json: %w", err)
	}
	byName := map[string]*testResult{}
	for dec := json.NewDecoder(bytes.NewReader(raw)); dec.More(); {
		var e event
		if err := dec.Decode(&e); err != nil {
			return fmt.Errorf("what test2json printed: %w", err)
		}
		if e.Test == "" {
			if e.Action == "output" && !strings.HasPrefix(e.Output, "=== ") {
				r.loose = append(r.loose, e.Output)
			}
			continue
		}
		t := byName[e.Test]
		if t == nil {
			t = &testResult{name: e.Test}
			byName[e.Test] = t
			r.tests = append(r.tests, t)
		}
		switch e.Action {
		case "output":
			if !strings.HasPrefix(e.Output, "=== ") {
				t.output = append(t.output, e.Output)
			}
		case "pass", "fail", "skip":
			t.action = e.Action
		}
	}
	return nil
}

func (r *result) count(action string) (n int) {
	for _, t := range r.tests {
		if t.action == action {
			n++
		}
	}
	return n
}

// bad are the tests that failed or did not end.
func (r *result) bad() (bad []*testResult) {
	for _, t := range r.tests {
		if t.action == "fail" || t.action == "" {
			bad = append(bad, t)
		}
	}
	return bad
}

// text is a line for a package that passed, and for another one also what its failing tests printed.
func (r *result) text() string {
	var b strings.Builder
	word, counts := "ok  ", fmt.Sprintf("%d passed", r.count("pass"))
	for _, more := range []struct{ word, action string }{{"failed", "fail"}, {"unfinished", ""}, {"skipped", "skip"}} {
		if n := r.count(more.action); n > 0 {
			counts += fmt.Sprintf(", %d %s", n, more.word)
		}
	}
	if r.failure != nil {
		word = "FAIL"
	}
	fmt.Fprintf(&b, "%s  %-32s %6.1fs  %s\n", word, r.pkg, r.took.Seconds(), counts)
	if r.failure == nil {
		return b.String()
	}
	for _, t := range r.bad() {
		if t.action == "" {
			fmt.Fprintf(&b, "    --- did not end: %s\n", t.name)
		}
		for _, line := range t.output {
			fmt.Fprintf(&b, "    %s", line)
		}
	}
	for _, line := range r.loose {
		if strings.TrimSpace(line) != "" {
			fmt.Fprintf(&b, "    %s", line)
		}
	}
	fmt.Fprintf(&b, "    %s: %v\n", r.pkg, r.failure)
	return b.String()
}

// summary prints what became of all, and returns the exit code.
func (r *report) summary(took time.Duration, machines int, left []string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.results, func(a, b result) int { return strings.Compare(a.pkg, b.pkg) })
	var failed, skipped []string
	passed, bad := 0, 0
	for _, res := range r.results {
		passed += res.count("pass")
		bad += len(res.bad())
		if res.failure != nil {
			failed = append(failed, res.pkg+" "+strings.Join(names(res.bad()), " "))
		}
		for _, t := range res.tests {
			if t.action == "skip" {
				skipped = append(skipped, fmt.Sprintf("%s %s: %s", res.pkg, t.name, t.reason()))
			}
		}
	}
	fmt.Fprintf(r.out, "\n%s on pure cgroup v2: %d passed, %d FAILED. Tests with their cases: %d passed, %d failed, %d skipped. %s, %s at a time.\n",
		plural(len(r.results), "package"), len(r.results)-len(failed), len(failed), passed, bad, len(skipped), took.Round(time.Second), plural(machines, "machine"))
	for _, part := range []struct {
		title string
		lines []string
	}{{"failed", failed}, {"skipped in the machine", skipped}, {"not run in the machine", left}} {
		if len(part.lines) > 0 {
			fmt.Fprintf(r.out, "\n%s:\n%s", part.title, list(part.lines))
		}
	}
	if len(failed) > 0 || len(r.results) == 0 {
		return 1
	}
	return 0
}

// reason is what a test said when it was skipped.
func (t *testResult) reason() string {
	var said []string
	for _, line := range t.output {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "--- ") {
			said = append(said, line)
		}
	}
	return strings.Join(said, " ")
}

func names(tests []*testResult) (all []string) {
	for _, t := range tests {
		all = append(all, t.name)
	}
	return all
}
