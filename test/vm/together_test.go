package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"monopod.dev/monopod/test/vm/guest"
	"monopod.dev/monopod/test/vm/machine"
)

// testRun is what a test runs in a machine.
type testRun struct {
	// files are what the machine has of it beside the tests, host path by absolute guest path.
	files map[string]string
	// modules are those of the kernel that it needs beside a node's. All that share the machine have them.
	modules []string
	env     []string // NAME=VALUE
	timeout time.Duration
	tests   []machine.Tests
	// before is a shell command without which there is nothing to test, onFailure one that tells more of a failure; "" is none.
	before, onFailure string
	// mustPass is the test that must have passed: to be skipped is not enough. "" is any.
	mustPass string
}

// member is a testRun that has been built.
type member struct {
	testRun
	name     string // of the test
	commands []string
}

// build compiles the tests.
func build(t *testing.T, r testRun) *member {
	t.Helper()
	m := &member{testRun: r, name: t.Name()}
	m.files = maps.Clone(r.files)
	if m.files == nil {
		m.files = map[string]string{}
	}
	dir := t.TempDir()
	for _, ts := range r.tests {
		put, command, err := ts.Build(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(m.files, put)
		m.commands = append(m.commands, command)
	}
	return m
}

// Marks are lines of a machine's output: the name of the test whose output follows, and how its commands ended.
const (
	beginMark = "=== begin "
	endMark   = "=== end "
)

// script runs the commands of all tests, also when one has failed, between the member's marks.
func (m *member) script() string {
	lines := []string{"failed=0"}
	for _, c := range m.commands {
		lines = append(lines, "("+c+") || failed=1")
	}
	script := strings.Join(append(lines, "[ $failed = 0 ]"), "\n")
	if m.before != "" {
		script = m.before + " && {\n" + script + "\n}"
	}
	if m.onFailure != "" {
		script = "{\n" + script + "\n} || { " + m.onFailure + "; exit 1; }"
	}
	for _, kv := range m.env {
		script = "export '" + kv + "'\n" + script
	}
	return fmt.Sprintf("printf '\\n%s%s\\n'\n(%s\n)\nprintf '\\n%s%s: %%d\\n' $?\n", beginMark, m.name, script, endMark, m.name)
}

// outcome finds in a machine's output what a member printed, and whether its commands came to their end without a failure. A machine that boots
// again begins with them anew: what was printed before belongs to them as well.
func (m *member) outcome(output string) (printed string, err error) {
	_, printed, begun := strings.Cut(output, "\n"+beginMark+m.name+"\n")
	if !begun {
		return "", errors.New("its tests did not begin")
	}
	printed, rest, ended := strings.Cut(printed, "\n"+endMark+m.name+": ")
	code, _, _ := strings.Cut(rest, "\n")
	switch {
	case !ended:
		return printed, errors.New("its tests did not come to their end")
	case code != "0":
		return printed, errors.New("exit code " + code)
	case !strings.Contains(printed, "--- PASS: "+m.mustPass):
		return printed, errors.New("it did not pass: " + m.mustPass)
	}
	return printed, nil
}

// boot runs members in a machine, one after another, and returns what they printed. The configuration says what kind of machine it is.
func boot(ctx context.Context, cfg machine.Config, members []*member) (output string, res machine.Result, err error) {
	if cfg.Init, err = initProgram(); err != nil {
		return "", res, err
	}
	var script strings.Builder
	var timeout time.Duration
	cfg.Files = map[string]string{}
	for _, m := range members {
		maps.Copy(cfg.Files, m.files)
		cfg.Modules = append(cfg.Modules, m.modules...)
		script.WriteString(m.script())
		timeout += m.timeout
	}
	var out strings.Builder
	cfg.Cache, cfg.Output = machine.DefaultCache(), &out
	cfg.Job = guest.Job{Args: []string{"sh", "-c", script.String()}, Env: []string{machine.SlowVariable + "=" + strconv.Itoa(machine.DefaultSlow)}}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errors.New("the tests in the machine took longer than "+timeout.String()))
	defer cancel()
	res, err = machine.Run(ctx, cfg)
	return out.String(), res, err
}

// report fails the test when its part of what the machine printed says so, or when the machine did not come so far.
func (m *member) report(t *testing.T, output string, machineErr error) {
	t.Helper()
	printed, err := m.outcome(output)
	switch {
	case err == nil:
	case machineErr != nil:
		t.Errorf("%v: %v\nits output so far:\n%s", err, machineErr, printed)
	default:
		t.Errorf("%v in the machine, where it printed\n%s", err, printed)
	}
}

// runTests runs the tests of packages in a machine of their own, and fails when one of them does.
func runTests(t *testing.T, kind machine.Config, r testRun) {
	t.Helper()
	m := build(t, r)
	kind.Log = t.Logf
	output, res, err := boot(t.Context(), kind, []*member{m})
	m.report(t, output, err)
	t.Log(took(res))
}

func took(res machine.Result) string {
	return fmt.Sprintf("disk %.1fs, boot %.1fs, tests %.1fs, of the processors %.1fs", res.Prepare.Seconds(), res.Boot.Seconds(), res.Job.Seconds(), res.CPU.Seconds())
}

// shared is a machine that several tests have in common, as a boot costs more than some of them. It runs those that were chosen, each by
// itself, in the order in which they began.
type shared struct {
	mu   sync.Mutex
	next *round // nil: nobody has asked for it
}

// round is one boot of a shared machine.
type round struct {
	members []*member
	once    sync.Once
	output  string
	res     machine.Result
	err     error
}

// join has the machine's next boot run a member too.
func (s *shared) join(m *member) *round {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = &round{err: errors.New("the machine was not started")}
	}
	s.next.members = append(s.next.members, m)
	return s.next
}

// close lets nobody join the next boot any more.
func (s *shared) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = nil
}

// runTests runs the tests of packages in the machine, and fails when one of them does. The test pauses, as a parallel one, until each other test of
// this package has ended or paused: then all that share the machine have joined.
func (s *shared) runTests(t *testing.T, r testRun) {
	t.Helper()
	m := build(t, r)
	now := s.join(m)
	t.Parallel()
	now.once.Do(func() {
		s.close()
		now.output, now.res, now.err = boot(t.Context(), machine.Config{Log: t.Logf}, now.members)
		t.Logf("%d tests: %s", len(now.members), took(now.res))
	})
	m.report(t, now.output, now.err)
}

func TestOutcome(t *testing.T) {
	m, other := &member{name: "TestA"}, &member{name: "TestB"}
	m.mustPass = "TestX"
	both := "\n=== begin TestA\n--- PASS: TestX (1s)\nsaid\n=== end TestA: 0\n\n=== begin TestB\n--- FAIL: TestY (1s)\n\n=== end TestB: 1\n"
	for _, c := range []struct {
		m                    *member
		output, printed, err string
	}{
		{m, both, "--- PASS: TestX (1s)\nsaid", ""},
		{other, both, "--- FAIL: TestY (1s)\n", "exit code 1"},
		{m, "\n=== begin TestA\n--- PASS: TestX", "--- PASS: TestX", "its tests did not come to their end"},
		{other, "\n=== begin TestA\n--- PASS: TestX", "", "its tests did not begin"},
		{m, "\n=== begin TestA\n--- SKIP: TestX (0s)\nPASS\n\n=== end TestA: 0\n", "--- SKIP: TestX (0s)\nPASS\n", "it did not pass: TestX"},
		{m, "\n=== begin TestA\nfirst boot\n\n=== begin TestA\n--- PASS: TestX (0s)\n\n=== end TestA: 0\n", "first boot\n\n=== begin TestA\n--- PASS: TestX (0s)\n", ""},
	} {
		printed, err := c.m.outcome(c.output)
		if printed != c.printed || fmt.Sprint(err) != c.err && (err != nil || c.err != "") {
			t.Errorf("%s of %q: %q, %v; want %q, %q", c.m.name, c.output, printed, err, c.printed, c.err)
		}
	}
}
