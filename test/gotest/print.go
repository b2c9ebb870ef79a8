package gotest

import (
	"strings"
)

// Failure is what `go test` prints of a package that failed, without the closing line: the output of its failed tests, each below its
// name, and what belongs to no test. What tests printed that passed is in Whole only.
func (r *Result) Failure() string {
	var b strings.Builder
	for _, t := range r.tests {
		if t.name == topLevel(t.name) {
			r.print(&b, t, 0, false)
		}
	}
	b.WriteString(r.output.String())
	return b.String()
}

// OutputOf is all that a test function and its subtests printed, whatever became of them.
func (r *Result) OutputOf(function string) string {
	var b strings.Builder
	if t := r.byName[function]; t != nil {
		r.print(&b, t, 0, true)
	}
	return b.String()
}

func (r *Result) print(b *strings.Builder, t *test, depth int, all bool) {
	if !all && (t.outcome == Pass || t.outcome == Skip) {
		return
	}
	indent := strings.Repeat("    ", depth)
	closing := t.closing
	if closing == "" {
		closing = "--- UNFINISHED: " + t.name
	}
	b.WriteString(indent + closing + "\n")
	for line := range strings.Lines(t.output.String()) {
		b.WriteString(indent + line)
		if !strings.HasSuffix(line, "\n") {
			b.WriteByte('\n')
		}
	}
	for _, sub := range r.tests {
		if parent, ok := r.parent(sub.name); ok && parent == t.name {
			r.print(b, sub, depth+1, all)
		}
	}
}

// parent is the test that a subtest belongs to. A subtest's own name may have slashes in it: the parent is the longest name that ran.
func (r *Result) parent(name string) (string, bool) {
	for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
		if r.byName[name[:i]] != nil {
			return name[:i], true
		}
	}
	return "", false
}
