package gotest

import (
	"slices"
	"strings"
)

// The ends of tests and packages, as test2json names them. Of a test that was running when its process ended there is none.
const (
	Pass = "pass"
	Fail = "fail"
	Skip = "skip"
)

// Result is what became of a package.
type Result struct {
	Package string
	// Outcome is Pass, Fail, or Skip for a package without tests.
	Outcome string
	// Unbuilt says that the package, or its tests, could not be built or loaded.
	Unbuilt bool
	// Closing is the line that `go test` closes the package with: "ok", "FAIL" or "?", the package and the time.
	Closing string
	// Whole is all of the output as it came, without Closing.
	Whole string

	// finished says that the testing package came to its end: every test has had its turn.
	finished bool
	tests    []*test // in the order in which they began
	byName   map[string]*test
	output   strings.Builder // what belongs to no test, without Closing
}

type test struct {
	name    string
	outcome string
	closing string // "--- FAIL: TestX (0.00s)"
	output  strings.Builder
}

// topLevel is the name of the test function that a test or a subtest belongs to.
func topLevel(name string) string {
	top, _, _ := strings.Cut(name, "/")
	return top
}

// Failed are the test functions that failed, in the order in which they began. Each has ended: see Unfinished.
func (r *Result) Failed() []string { return r.functions(Fail) }

// Unfinished are the test functions that were running when the process of the tests ended.
func (r *Result) Unfinished() []string { return r.functions("") }

// Passed says whether a test function ran and passed.
func (r *Result) Passed(function string) bool {
	t := r.byName[function]
	return t != nil && t.outcome == Pass
}

func (r *Result) functions(outcome string) []string {
	var names []string
	for _, t := range r.tests {
		if t.name == topLevel(t.name) && t.outcome == outcome && !slices.Contains(names, t.name) {
			names = append(names, t.name)
		}
	}
	return names
}

// FailedByTestsAlone says that a package failed because of tests that failed, and of nothing else: then every other test has had its turn and passed. Else the process
// ended by itself (a panic, a time-out, os.Exit), or TestMain found fault (goroutines that were left).
func (r *Result) FailedByTestsAlone() bool {
	return r.Outcome == Fail && !r.Unbuilt && r.finished && len(r.Failed()) > 0 && len(r.Unfinished()) == 0
}

// collector turns events into results.
type collector struct {
	open  map[string]*Result
	whole map[string]*strings.Builder
}

func newCollector() *collector {
	return &collector{open: map[string]*Result{}, whole: map[string]*strings.Builder{}}
}

// take takes an event of a package; it returns the result when the package has ended.
func (c *collector) take(e Event) *Result {
	r := c.open[e.Package]
	if r == nil {
		r = &Result{Package: e.Package, byName: map[string]*test{}}
		c.open[e.Package], c.whole[e.Package] = r, &strings.Builder{}
	}
	if e.Test != "" {
		r.takeTest(e)
	}
	switch {
	case e.Action == "output":
		if e.Test != "" || !r.takeOutput(e.Output) {
			c.whole[e.Package].WriteString(e.Output)
		}
	case e.Test == "" && (e.Action == Pass || e.Action == Fail || e.Action == Skip):
		r.Outcome, r.Unbuilt, r.Whole = e.Action, e.FailedBuild != "", c.whole[e.Package].String()
		delete(c.open, e.Package)
		delete(c.whole, e.Package)
		return r
	}
	return nil
}

// takeOutput takes what is printed outside of tests, and says whether it is the closing line.
func (r *Result) takeOutput(text string) (closing bool) {
	switch {
	case text == "PASS\n" || text == "FAIL\n":
		r.finished = true
	case strings.HasPrefix(text, "ok  \t"+r.Package) || strings.HasPrefix(text, "FAIL\t"+r.Package) || strings.HasPrefix(text, "?   \t"+r.Package):
		r.Closing = strings.TrimSuffix(text, "\n")
		return true
	default:
		r.output.WriteString(text)
	}
	return false
}

func (r *Result) takeTest(e Event) {
	t := r.byName[e.Test]
	if t == nil {
		t = &test{name: e.Test}
		r.byName[e.Test] = t
		r.tests = append(r.tests, t)
	}
	switch e.Action {
	case Pass, Fail, Skip:
		if t.outcome != Fail { // with -count above 1 a test has several ends
			t.outcome = e.Action
		}
	case "output":
		line := strings.TrimLeft(e.Output, " ")
		switch {
		case t.isClosing(line):
			t.closing = strings.TrimSuffix(line, "\n")
		case !isMark(line):
			t.output.WriteString(e.Output)
		}
	}
}

func (t *test) isClosing(line string) bool {
	for _, word := range []string{"--- FAIL: ", "--- PASS: ", "--- SKIP: "} {
		if strings.HasPrefix(line, word+t.name+" (") {
			return true
		}
	}
	return false
}

// isMark says that a line only tells whose turn it is.
func isMark(line string) bool {
	for _, word := range []string{"=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME ", "=== ATTR "} {
		if strings.HasPrefix(line, word) {
			return true
		}
	}
	return false
}
