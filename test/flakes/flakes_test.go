package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// killedCommand makes the test's program the command, for a test that kills it.
const killedCommand = "run-until-killed"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case burnCommand:
			burn()
		case killedCommand:
			o, err := parse(os.Args[3:])
			if err == nil {
				o.dir = os.Args[2]
				_, err = o.run(context.Background())
			}
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// fakeModule is a module with the packages a, b, which a is made of, and c, which has nothing to do with them.
func fakeModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":            "module fake\n\ngo 1.26\n",
		"a/a.go":            "package a\n\nimport \"fake/b\"\n\nvar A = b.B\n",
		"a/a_test.go":       "package a\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {}\n",
		"a/testdata/x":      "x",
		"b/b.go":            "package b\n\nvar B = 1\n",
		"b/b_test.go":       "package b\n\nimport \"testing\"\n\nfunc TestB(t *testing.T) {}\n",
		"c/c_test.go":       "package c\n\nimport \"testing\"\n\nfunc TestC(t *testing.T) {}\n",
		"none/none.go":      "package none\n",
		"bench/bench.go":    "package bench\n",
		"bench/b_test.go":   "package bench\n\nimport \"testing\"\n\nfunc BenchmarkX(b *testing.B) {}\n",
		"docs/page":         "text",
		"reads/r_test.go":   "package reads\n\nimport (\"os\"; \"testing\")\n\nfunc TestR(t *testing.T) { if _, err := os.ReadFile(\"../docs/page\"); err != nil { t.Fatal(err) } }\n",
		"reads/testdata/no": "n",
	} {
		write(t, filepath.Join(dir, name), text)
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// newOptions are those of a command in the module, with a tally of its own.
func newOptions(t *testing.T, dir string) options {
	return options{dir: dir, state: filepath.Join(t.TempDir(), "state"), rounds: 2, timeout: "60s", patterns: []string{"./..."}, out: io.Discard, idle: true}
}

func (o options) mustFind(t *testing.T) map[string]pkg {
	t.Helper()
	list, err := o.find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]pkg{}
	for _, p := range list {
		found[p.Path] = p
	}
	return found
}

// TestAChangeVoidsItsOwnPackages: the key of a package changes with what it is made of, what its tests read, and nothing else.
func TestAChangeVoidsItsOwnPackages(t *testing.T) {
	dir := fakeModule(t)
	o := newOptions(t, dir)
	before := o.mustFind(t)
	if len(before) != 4 || before["fake/a"].Key == "" {
		t.Fatalf("%v: want a, b, c and reads, which have tests", before)
	}
	for _, c := range []struct {
		name, file, text string
		voids            []string
	}{
		{"nothing", "", "", nil},
		{"a comment nobody compiles", "README", "hello", nil},
		{"a test", "b/b_test.go", "package b\n\nimport \"testing\"\n\nfunc TestB2(t *testing.T) {}\n", []string{"fake/b"}},
		{"what another is made of", "b/b.go", "package b\n\nvar B = 2\n", []string{"fake/a", "fake/b"}},
		{"a new file", "c/new.go", "package c\n", []string{"fake/c"}},
		{"data of a test", "a/testdata/x", "y", []string{"fake/a"}},
		{"a page that a test reads", "docs/page", "other", []string{"fake/reads"}},
		{"a package without tests", "none/none.go", "package none\n\nvar X = 1\n", nil},
	} {
		if c.file != "" {
			write(t, filepath.Join(dir, c.file), c.text)
		}
		now := o.mustFind(t)
		var voided []string
		for path, p := range now {
			if p.Key != before[path].Key {
				voided = append(voided, path)
			}
		}
		slices.Sort(voided)
		if !slices.Equal(voided, c.voids) {
			t.Errorf("%s voids %v, want %v", c.name, voided, c.voids)
		}
		before = now
	}
	// Another checkout of the same sources is the same.
	other := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	o.dir = other
	for path, p := range o.mustFind(t) {
		if p.Key != before[path].Key {
			t.Errorf("%s has another key in another folder", path)
		}
	}
}

// TestContainersAreFound looks at this module: which packages start containers is read from their sources.
func TestContainersAreFound(t *testing.T) {
	o, err := parse([]string{"-state", t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	o.dir = "../.."
	found := o.mustFind(t)
	for path, want := range map[string]struct{ containers, cgo bool }{
		"internal/runtime": {true, false}, "internal/executor": {true, true}, "internal/executor/spawn": {true, true}, "internal/executor/worker/table": {false, true},
		"test/e2e": {true, false}, "test/crash": {true, false}, "internal/state": {}, "internal/image": {}, "internal/executor/crilog": {false, true}, "test/vm": {},
	} {
		p, ok := found[ours+"/"+path]
		if !ok || p.Containers != want.containers || p.Cgo != want.cgo {
			t.Errorf("%s: found %v, containers %v, cgo %v; want containers %v, cgo %v", path, ok, p.Containers, p.Cgo, want.containers, want.cgo)
		}
	}
	for _, path := range []string{"test/bench", "test/testcerts"} {
		if _, ok := found[ours+"/"+path]; ok {
			t.Errorf("%s has no tests to run", path)
		}
	}
}

func TestExamine(t *testing.T) {
	e := examine("x", "func TestMain(m *testing.M) {\n")
	if e.tests || e.containers || len(e.programs)+len(e.paths) != 0 {
		t.Errorf("only TestMain: %+v", e)
	}
	e = examine("x", `func TestX(t *testing.T) { harness.StartNode(t); build("monopod.dev/monopod/cmd/kubectl"); read("../../docs/A.md"); harness.BuildRunc(dir); path("../../x") }`+"\nfunc TestX(")
	if !e.tests || !e.containers || !e.runc || !slices.Equal(e.programs, []string{"cmd/kubectl", "cmd/monopod", "cmd/monopod-executor", "examples/guestbook", "examples/hello"}) || !slices.Equal(e.paths, []string{"../../docs/A.md"}) {
		t.Errorf("%+v", e)
	}
	if e := examine("internal/archtest", "func TestX("); !e.everything {
		t.Errorf("archtest reads the sources: %+v", e)
	}
}

func TestNext(t *testing.T) {
	a, b, c := pkg{Path: "a", Key: "1"}, pkg{Path: "b", Key: "1", Containers: true}, pkg{Path: "c", Key: "1"}
	packages, tl := []pkg{a, b, c}, &tally{Version: tallyVersion}
	failed := map[string]bool{}
	var order strings.Builder
	for {
		p, some := next(tl, packages, failed, -1)
		if !some {
			break
		}
		order.WriteString(p.Path)
		var f *failure
		if p == c && tl.of(c).Clean == 1 {
			f, failed["c"] = &failure{}, true
		}
		tl.count(p, "", time.Now(), f)
	}
	// Whole rounds come first; c fails in its second and is left alone; b, which starts containers, has twenty.
	if want := "abc" + "abc" + "ab" + strings.Repeat("b", 17); order.String() != want {
		t.Errorf("%s, want %s", &order, want)
	}
	if p, some := next(tl, packages, map[string]bool{}, -1); !some || p != c {
		t.Errorf("the next call takes up what has failed: %v %v", p, some)
	}
	if _, some := next(tl, packages, map[string]bool{}, 0); some {
		t.Error("no round is wanted")
	}
}

func TestTally(t *testing.T) {
	p := pkg{Path: "a", Key: "k"}
	tl := &tally{Version: tallyVersion}
	at := time.Now()
	tl.count(p, "c1", at, nil)
	tl.count(p, "c1", at, nil)
	tl.count(p, "c2", at, &failure{Seed: "7"})
	tl.count(p, "c2", at, nil)
	if e := tl.of(p); e.Clean != 1 || len(e.listed()) != 1 || e.Commit != "c2" {
		t.Errorf("a failure voids what was clean, and stays listed: %+v", e)
	}
	if e := tl.of(pkg{Path: "a", Key: "other"}); e.Clean != 0 || len(e.Failures) != 0 {
		t.Errorf("after a change nothing is known: %+v", e)
	}
	tl.forget([]pkg{p, {Path: "none"}}, "the disk was full")
	if e := tl.of(p); len(e.listed()) != 0 || e.Failures[0].Forgotten != "the disk was full" || e.Clean != 1 {
		t.Errorf("forgotten, and written down: %+v", e)
	}
	for i := range 2 * kept {
		tl.count(pkg{Path: "a", Key: fmt.Sprint(i)}, "", at.Add(time.Duration(i+1)*time.Second), nil)
	}
	if n := len(tl.Packages["a"]); n != kept {
		t.Errorf("%d states are kept, want %d", n, kept)
	}
	if e := tl.of(pkg{Path: "a", Key: fmt.Sprint(2*kept - 1)}); e.Clean != 1 {
		t.Errorf("the newest is kept: %+v", e)
	}
}

func TestStore(t *testing.T) {
	s := store{dir: filepath.Join(t.TempDir(), "new")}
	if tl, err := s.read(); err != nil || len(tl.Packages) != 0 {
		t.Fatalf("no tally yet: %v, %v", tl, err)
	}
	p := pkg{Path: "a", Key: "k"}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				if err := s.change(func(tl *tally) { tl.count(p, "", time.Now(), nil) }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if tl, err := s.read(); err != nil || tl.of(p).Clean != 40 {
		t.Errorf("of 40 rounds at once were counted: %+v, %v", tl, err)
	}
	for name, text := range map[string]string{"half a file": `{"version":1,"pack`, "another version": `{"version":2}`} {
		write(t, s.path(), text)
		if _, err := s.read(); err == nil || !strings.Contains(err.Error(), s.path()) {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.change(func(*tally) { t.Errorf("%s is changed", name) }); err == nil {
			t.Errorf("%s is overwritten", name)
		}
	}
}

// TestRounds runs a module whose package b fails once: what was clean stays counted, the failure is kept with its output and its seed, and the
// next call goes on where this one ended.
func TestRounds(t *testing.T) {
	dir := fakeModule(t)
	mark := filepath.Join(t.TempDir(), "mark")
	write(t, filepath.Join(dir, "b/b_test.go"), fmt.Sprintf(`package b

import ("os"; "testing")

func TestB(t *testing.T) {
	if _, err := os.Stat(%[1]q); err != nil {
		os.WriteFile(%[1]q, nil, 0o644)
		t.Fatal("the first time only")
	}
}
`, mark))
	o := newOptions(t, dir)
	o.patterns = []string{"./a", "./b"}
	var out bytes.Buffer
	o.out = &out
	clean, err := o.run(t.Context())
	if err != nil || clean {
		t.Fatalf("clean %v, %v\n%s", clean, err, &out)
	}
	tl, err := store{dir: o.state}.read()
	if err != nil {
		t.Fatal(err)
	}
	found := o.mustFind(t)
	a, b := tl.of(found["fake/a"]), tl.of(found["fake/b"])
	if a.Clean != 2 || b.Clean != 0 || len(b.Failures) != 1 || !slices.Equal(b.Failures[0].Tests, []string{"TestB"}) {
		t.Fatalf("a %+v, b %+v\n%s", a, b, &out)
	}
	raw, err := os.ReadFile(b.Failures[0].Log)
	for _, want := range []string{"the first time only", "-shuffle=" + b.Failures[0].Seed, "FAIL\tfake/b\t"} {
		if err != nil || !strings.Contains(string(raw), want) {
			t.Errorf("the output of the failure does not have %q: %q, %v", want, raw, err)
		}
	}
	for _, want := range []string{"FLAKY fake/b TestB", b.Failures[0].Log, "ok  \tfake/a\t", "round 2 of 2"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
	out.Reset()
	if clean, err = o.run(t.Context()); err != nil || clean { // it passes now: the failure stays listed until somebody mends it
		t.Fatalf("clean %v, %v\n%s", clean, err, &out)
	}
	if strings.Contains(out.String(), "ok  \tfake/a\t") || strings.Count(out.String(), "ok  \tfake/b\t") != 2 {
		t.Errorf("want two rounds of b and none of a:\n%s", &out)
	}
	write(t, filepath.Join(dir, "b/b_test.go"), "package b\n\nimport \"testing\"\n\nfunc TestB(t *testing.T) { t.Log(\"mended\") }\n")
	if clean, err = o.run(t.Context()); err != nil || !clean {
		t.Errorf("mended: clean %v, %v\n%s", clean, err, &out)
	}
}

// TestNotBuilt: what cannot be built is no flake, and nothing is counted.
func TestNotBuilt(t *testing.T) {
	dir := fakeModule(t)
	write(t, filepath.Join(dir, "c/c_test.go"), "package c\n\nimport \"testing\"\n\nfunc TestC(t *testing.T) { nonsense() }\n")
	o := newOptions(t, dir)
	o.patterns = []string{"./c"}
	if clean, err := o.run(t.Context()); clean || err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("clean %v, %v", clean, err)
	}
	if tl, err := (store{dir: o.state}).read(); err != nil || len(tl.Packages) != 0 {
		t.Errorf("%+v, %v", tl, err)
	}
}

// TestKilled kills the command with SIGKILL in the midst of a round: the round does not count, the tally can be read, and the load ends with it.
func TestKilled(t *testing.T) {
	dir := fakeModule(t)
	begun := filepath.Join(t.TempDir(), "begun")
	if err := unix.Mkfifo(begun, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "c/c_test.go"), fmt.Sprintf("package c\n\nimport (\"os\"; \"testing\")\n\nfunc TestC(t *testing.T) { f, _ := os.OpenFile(%q, os.O_WRONLY, 0); f.Write([]byte{1}) }\n", begun))
	o := newOptions(t, dir)
	cmd := exec.Command("/proc/self/exe", killedCommand, dir, "-state", o.state, "-rounds", "1", "./a", "./c")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(begun) // c's test has begun: a is counted
	if err != nil {
		t.Fatal(err)
	}
	children := childrenOf(t, cmd.Process.Pid)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(f); err != nil { // the test that was left ends by itself
		t.Error(err)
	}
	f.Close()
	tl, err := store{dir: o.state}.read()
	if err != nil {
		t.Fatal(err)
	}
	found := o.mustFind(t)
	if a, c := tl.of(found["fake/a"]), tl.of(found["fake/c"]); a.Clean != 1 || c.Clean != 0 || len(c.Failures) != 0 {
		t.Errorf("a %+v, c %+v", a, c)
	}
	for _, pid := range children {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
		if n != 1 {
			t.Errorf("process %d goes on: %v", pid, err)
		}
		unix.Close(fd)
	}
}

func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("children of %d: %v, %v", pid, tasks, err)
	}
	var pids []int
	for _, path := range tasks {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that has ended
		}
		for field := range strings.FieldsSeq(string(raw)) {
			var child int
			if _, err := fmt.Sscan(field, &child); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, child)
		}
	}
	if len(pids) < 2 {
		t.Errorf("children %v, want the load and go test", pids)
	}
	return pids
}
