package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// What tests print with -test.v=test2json.
const (
	allPass = "=== internal/good\n\x16=== RUN   TestA\n\x16=== RUN   TestA/case\n    a_test.go:1: a log line\n\x16--- PASS: TestA (0.01s)\n    \x16--- PASS: TestA/case (0.01s)\n" +
		"\x16=== RUN   TestB\n    b_test.go:7: this kernel has none\n\x16--- SKIP: TestB (0.00s)\n\x16PASS\n"
	oneFails = "\x16=== RUN   TestC\n    c_test.go:3: got 1,\n        want 2\n\x16--- FAIL: TestC (0.10s)\n\x16=== RUN   TestD\n    d_test.go:9: quiet\n\x16--- PASS: TestD (0.00s)\n\x16FAIL\n"
	dies     = "\x16=== RUN   TestE\npanic: oh no\n\ngoroutine 1 [running]:\n"
)

// machineOutput is what comes out of a machine whose script ran the packages.
func machineOutput(outputs ...string) string {
	var b strings.Builder
	b.WriteString("the machine's own\n")
	for i := 0; i < len(outputs); i += 3 {
		fmt.Fprintf(&b, "\n%s%s %s\n%s", mark, beginWord, outputs[i], outputs[i+1])
		if outputs[i+2] != "" {
			fmt.Fprintf(&b, "\n%s%s %s\n", mark, endWord, outputs[i+2])
		}
	}
	return b.String()
}

var durations = regexp.MustCompile(` +[0-9.]+s `)

func TestReport(t *testing.T) {
	var out strings.Builder
	r := &report{out: &out, logs: t.TempDir()}
	s := &stream{r: r, packages: []testPackage{{name: "internal/good"}, {name: "internal/bad"}, {name: "internal/dead"}, {name: "internal/never"}}}
	raw := machineOutput("internal/good", allPass, "0", "internal/bad", oneFails, "1", "internal/dead", dies, "")
	for i := range len(raw) { // a port hands over what it has, not lines
		if _, err := s.Write([]byte(raw[i : i+1])); err != nil {
			t.Fatal(err)
		}
	}
	s.missing(errors.New("the kernel has panicked"))
	code := r.summary(90*time.Second, 2, []string{"test/vm (1 package): is the machine"})
	want := `ok    internal/good                      0.0s  2 passed, 1 skipped
FAIL  internal/bad                       0.0s  1 passed, 1 failed
        c_test.go:3: got 1,
            want 2
    --- FAIL: TestC (0.10s)
    FAIL
    internal/bad: exit code 1
FAIL  internal/dead                      0.0s  0 passed, 1 unfinished
    --- did not end: TestE
    panic: oh no
    
    goroutine 1 [running]:
    internal/dead: the kernel has panicked
FAIL  internal/never                     0.0s  0 passed
    internal/never: the kernel has panicked

4 packages on pure cgroup v2: 1 passed, 3 FAILED. Tests with their cases: 3 passed, 2 failed, 1 skipped. 1m30s, 2 machines at a time.

failed:
  internal/bad TestC
  internal/dead TestE
  internal/never 

skipped in the machine:
  internal/good TestB: b_test.go:7: this kernel has none

not run in the machine:
  test/vm (1 package): is the machine
`
	if got := durations.ReplaceAllString(out.String(), "    0.0s "); got != durations.ReplaceAllString(want, "    0.0s ") || code != 1 {
		t.Errorf("exit code %d, printed\n%s\nwant\n%s", code, got, want)
	}
	log, err := os.ReadFile(filepath.Join(r.logs, "internal-dead.log"))
	if err != nil || !strings.Contains(string(log), "panic: oh no") {
		t.Errorf("log %q, %v", log, err)
	}
}

func TestExitCode(t *testing.T) {
	for name, tc := range map[string]struct {
		output, end string
		code        int
	}{
		"all pass":                         {allPass, "0", 0},
		"a test fails":                     {oneFails, "1", 1},
		"the tests die":                    {dies, "2", 1},
		"nothing is heard of any test":     {"\x16PASS\n", "0", 1},
		"no test has the name":             {"testing: warning: no tests to run\n\x16PASS\n", "0", 0},
		"a test fails after its own end":   {allPass, "1", 1},
		"the machine ends before the test": {"", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := &report{out: &out, logs: t.TempDir()}
			s := &stream{r: r, packages: []testPackage{{name: "p"}}}
			if _, err := s.Write([]byte(machineOutput("p", tc.output, tc.end))); err != nil {
				t.Fatal(err)
			}
			s.missing(errors.New("it has ended"))
			if code := r.summary(time.Second, 1, nil); code != tc.code {
				t.Errorf("exit code %d, want %d; printed\n%s", code, tc.code, out.String())
			}
		})
	}
	if (&report{out: &strings.Builder{}}).summary(0, 1, nil) != 1 {
		t.Error("nothing was run, and the exit code is 0")
	}
}
