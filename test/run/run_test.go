package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// once is a helper of the fake packages: false at its first call in a folder, by a file that it leaves there.
const once = `
func again(name string) bool {
	_, err := os.Stat(name)
	if err != nil {
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			panic(err)
		}
	}
	return err == nil
}
`

// fakes are packages by name, each the text of a test file without its head.
var fakes = map[string]string{
	"fine":   `func TestFine(t *testing.T) { t.Log("not to be seen") }`,
	"always": `func TestAlways(t *testing.T) { t.Error("it is broken") }; func TestBeside(t *testing.T) { t.Log("not to be seen") }`,
	"first": once + `
		func TestBefore(t *testing.T) {}
		func TestFirst(t *testing.T) {
			t.Run("a/b", func(t *testing.T) { if !again("mark") { t.Error("the first time only") }; t.Log("passing by") })
		}
		func TestFirstToo(t *testing.T) { t.Log("a longer name, that -run must not choose") }`,
	"two":   once + `func TestOne(t *testing.T) { if !again("1") { t.Error("one") } }; func TestTwo(t *testing.T) { if !again("2") { t.Error("two") } }`,
	"mixed": once + `func TestOne(t *testing.T) { if !again("1") { t.Error("one") } }; func TestBad(t *testing.T) { t.Error("bad") }`,
	"panics": once + `
		func TestPanics(t *testing.T) { if !again("mark") { panic("the first time only") } }
		func TestLater(t *testing.T) { if !again("mark2") { t.Log("its turn is after the panic") } else { t.Log("ran before") } }`,
	"several": once + `
		func TestOne(t *testing.T) { if !again("1") { t.Error("one") } }
		func TestTwo(t *testing.T) { if !again("2") { t.Error("two") } }
		func TestPanics(t *testing.T) { if !again("mark") { panic("the first time only") } }`,
	"many": `func TestA(t *testing.T) { t.Fail() }; func TestB(t *testing.T) { t.Fail() }; func TestC(t *testing.T) { t.Fail() }
		func TestD(t *testing.T) { t.Fail() }; func TestE(t *testing.T) { t.Fail() }; func TestF(t *testing.T) { t.Fail() }`,
	"behind": once + `
		func TestPanics(t *testing.T) { if !again("mark") { go panic("the first time only"); select {} } }
		func TestLater(t *testing.T) { t.Error("never ran behind the panic") }`,
	"slow":    once + `func TestSlow(t *testing.T) { t.Run("sub", func(t *testing.T) { if !again("mark") { select {} } }) }; func TestEnd(t *testing.T) {}`,
	"leaves":  once + `func TestMain(m *testing.M) { m.Run(); if !again("mark") { println("goroutines are left"); os.Exit(1) } }; func TestFine(t *testing.T) {}`,
	"skips":   once + `func TestSkips(t *testing.T) { if again("mark") { t.Skip("not on this machine") }; t.Error("bad") }`,
	"unbuilt": `func TestUnbuilt(t *testing.T) { noSuchThing() }`,
	"vet":     `func TestVet(t *testing.T) { t.Logf("%d", "x") }`,
}

// fakeModule writes the named fakes into a module of their own.
func fakeModule(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module fake\n\ngo 1.26\n")
	for _, name := range names {
		imports := `import "testing"`
		if strings.Contains(fakes[name], "os.") {
			imports = `import ("os"; "testing")`
		}
		write(name+"/fake_test.go", "package "+name+"\n"+imports+"\n"+fakes[name])
	}
	return dir
}

// linked is where the fakes' programs are kept: a case runs a package twice, and several cases have the same package.
var linked string

func TestMain(m *testing.M) {
	var err error
	if linked, err = os.MkdirTemp("", "monopod-linked-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(linked)
	os.Exit(code)
}

// linkOnce are the flags of go test that have a program linked once only.
func linkOnce(t *testing.T) []string {
	t.Helper()
	script, err := filepath.Abs("testdata/linkonce.sh")
	if err != nil {
		t.Fatal(err)
	}
	return []string{"-trimpath", "-ldflags=-s -w", fmt.Sprintf("-toolexec='%s' '%s'", script, linked)}
}

// runFakes runs the named fakes and returns what is printed.
func runFakes(t *testing.T, o options, names ...string) (green bool, printed string, err error) {
	t.Helper()
	var out strings.Builder
	o.dir, o.packages, o.out, o.stderr = fakeModule(t, names...), []string{"./..."}, &out, &out
	if o.flags == nil {
		o.flags = []string{"-p", "1", "-timeout", "60s", "-vet=off"} // which is quicker
	}
	o.flags = append(linkOnce(t), o.flags...)
	green, err = o.run(context.Background())
	return green, out.String(), err
}

func TestRuns(t *testing.T) {
	for name, c := range map[string]struct {
		packages []string
		flags    []string
		green    bool
		says     []string
		not      []string
	}{
		"all is well": {packages: []string{"fine"}, green: true, says: []string{"ok  \tfake/fine\t"}, not: []string{"FLAKY", "not to be seen", "=== RUN"}},
		"a test that fails the first time only is FLAKY": {packages: []string{"fine", "first"}, green: true,
			says: []string{"ok  \tfake/fine\t", "--- FAIL: TestFirst (", "\n    --- FAIL: TestFirst/a/b (", "the first time only", "FLAKY fake/first TestFirst: ",
				"what it printed when it passed:\n--- PASS: TestFirst (", "passing by", "ok  \tfake/first\t", "[FLAKY: TestFirst]"},
			not: []string{"FAIL\tfake/first", "TestFirstToo", "TestBefore"}},
		"a test that fails always":  {packages: []string{"always"}, says: []string{"it is broken", "fake/always TestAlways: it failed again", "FAIL\tfake/always\t"}, not: []string{"FLAKY", "ok  ", "not to be seen"}},
		"two FLAKY tests are red":   {packages: []string{"two"}, says: []string{"FLAKY fake/two TestOne", "FLAKY fake/two TestTwo", `red: 2 FLAKY in one run`}},
		"one FLAKY and one failure": {packages: []string{"mixed"}, says: []string{"FLAKY fake/mixed TestOne", "TestBad: it failed again", "FAIL\tfake/mixed\t"}, not: []string{"ok  \t"}},
		"a panic runs all again, as some had no turn": {packages: []string{"panics"}, green: true,
			says: []string{"panic: the first time only", "once more, alone: fake/panics\n", "FLAKY fake/panics: ", "what it printed when it passed:\n--- PASS: TestPanics", "[FLAKY: the package]"},
			not:  []string{"its turn is after the panic"}},
		"what a panic takes along is one failure": {packages: []string{"several"}, green: true, says: []string{"one", "two", "FLAKY fake/several: ", "ok  \tfake/several\t"}},
		"a heap of failures is red at once":       {packages: []string{"many"}, says: []string{"TestE: it failed again", "not tried again", ": 1 more"}, not: []string{"alone: fake/many TestF"}},
		"a failure behind a panic is seen":        {packages: []string{"behind"}, says: []string{"--- UNFINISHED: TestPanics", "never ran behind the panic", "fake/behind: it failed again", "FAIL\tfake/behind\t"}, not: []string{"FLAKY", "ok  \t"}},
		"a time-out": {packages: []string{"slow"}, flags: []string{"-timeout", "3s"}, green: true,
			says: []string{"test timed out after 3s", "--- UNFINISHED: TestSlow", "FLAKY fake/slow: ", "--- PASS: TestSlow"}},
		"TestMain finds fault":              {packages: []string{"leaves"}, green: true, says: []string{"goroutines are left", "FLAKY fake/leaves: "}},
		"a skip is no success":              {packages: []string{"skips"}, says: []string{"TestSkips: it was skipped or not found", "not on this machine", "FAIL\tfake/skips\t"}, not: []string{"FLAKY"}},
		"what is not built is not retried":  {packages: []string{"fine", "unbuilt", "first"}, says: []string{"undefined: noSuchThing", "FAIL\tfake/unbuilt [build failed]", "ok  \tfake/fine\t", "FLAKY fake/first"}, not: []string{"alone: fake/unbuilt"}},
		"what vet refuses is not retried":   {packages: []string{"vet"}, flags: []string{"-p=1"}, says: []string{"format %d has arg", "FAIL\tfake/vet [build failed]"}, not: []string{"alone"}},
		"a filter that finds nothing again": {packages: []string{"always"}, flags: []string{"-run", "TestAlways", "-count=1"}, says: []string{"fake/always TestAlways: it failed again"}},
	} {
		t.Run(name, func(t *testing.T) {
			green, printed, err := runFakes(t, options{flags: c.flags}, c.packages...)
			if err != nil {
				t.Fatalf("%v\n%s", err, printed)
			}
			if green != c.green {
				t.Errorf("green: %v, want %v", green, c.green)
			}
			for _, want := range c.says {
				if !strings.Contains(printed, want) {
					t.Errorf("it does not say %q", want)
				}
			}
			for _, bad := range c.not {
				if strings.Contains(printed, bad) {
					t.Errorf("it says %q", bad)
				}
			}
			if n := strings.Count(printed, "ok  \t") + strings.Count(printed, "FAIL\t"); n != len(c.packages) {
				t.Errorf("%d closing lines of %d packages", n, len(c.packages))
			}
			if t.Failed() {
				t.Log(printed)
			}
		})
	}
}

// TestRunOfSeveralCalls: a run of CI is several calls of the command, and they count together.
func TestRunOfSeveralCalls(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "flaky")
	for _, call := range []struct {
		id    string
		green bool
	}{{"a", true}, {"b", true}, {"b", false}, {"c", true}} {
		green, printed, err := runFakes(t, options{id: call.id, file: file}, "first")
		if err != nil || green != call.green {
			t.Fatalf("run %s: green %v, error %v, want green %v\n%s", call.id, green, err, call.green, printed)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o755); err != nil {
		t.Fatal(err)
	}
	if green, _, err := runFakes(t, options{id: "d", file: file}, "first"); green || err == nil {
		t.Errorf("a FLAKY test that cannot be written down: green %v, error %v", green, err)
	}
}

// TestBrief: what failed is told once more in a few lines, by all calls of a run of CI in one file.
func TestBrief(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "failed")
	for _, names := range [][]string{{"fine"}, {"first"}, {"panics", "always"}} {
		if _, printed, err := runFakes(t, options{brief: file}, names...); err != nil {
			t.Fatalf("%v\n%s", err, printed)
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	said := string(raw)
	for _, want := range []string{"=== FLAKY: fake/first TestFirst\n    --- FAIL: TestFirst (", "    --- FAIL: TestFirst/a/b (", "_test.go:", "the first time only",
		"=== failed twice: fake/always TestAlways\n", "it is broken", "=== FLAKY: fake/panics\n", "    panic: the first time only"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	for _, bad := range []string{"not to be seen", "goroutine"} {
		if strings.Contains(said, bad) {
			t.Errorf("it says %q", bad)
		}
	}
	if t.Failed() {
		t.Log(said)
	}
}

// TestGist: a test that logs much, or has many subtests, does not hide its faults, and none is told at length.
func TestGist(t *testing.T) {
	output := "--- FAIL: TestX (1s)\n" + strings.Repeat("    x_test.go:1: time=now level=DEBUG msg=m\n", 50) + "    x_test.go:2: " + strings.Repeat("long ", 100) + "\n" +
		strings.Repeat("    --- PASS: TestX/a (1s)\n    x_test.go:4: in passing\n", 50) + "    --- FAIL: TestX/b (1s)\n" +
		strings.Repeat("    x_test.go:3: again\n", 50) + "    x_test.go:9: failed: time=now level=WARN msg=m\npanic: in the end\n"
	got := gist(output)
	if len(got) != briefLines+2 || got[len(got)-1] != "    panic: in the end" || got[0] != "    --- FAIL: TestX (1s)" || !strings.HasPrefix(got[1], "    x_test.go:2: long ") || len(got[1]) != 4+briefBytes+3 ||
		got[2] != "    --- FAIL: TestX/b (1s)" || got[briefLines/2] != "    (42 lines more)" || got[briefLines] != "    x_test.go:9: failed: time=now level=WARN msg=m" {
		t.Errorf("%q", got)
	}
}

// TestGoTestItselfFails: no result stands for what was not run.
func TestGoTestItselfFails(t *testing.T) {
	for name, o := range map[string]options{
		"a flag's value that go test does not take": {flags: []string{"-p", "none"}},
		"nothing is run": {flags: []string{"-c", "-o", t.TempDir() + "/"}},
	} {
		if green, printed, err := runFakes(t, o, "fine"); green || err == nil {
			t.Errorf("%s: green %v, error %v\n%s", name, green, err, printed)
		}
	}
}

// TestInterrupted: who interrupts a run gets no second runs and no success.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out strings.Builder
	o := options{dir: fakeModule(t, "always"), packages: []string{"./..."}, out: &out, stderr: &out}
	if green, err := o.run(ctx); green || err == nil || strings.Contains(out.String(), "once more") {
		t.Errorf("green %v, error %v, %q", green, err, &out)
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-id", "x", "--", "-p", "1", "-tags", "a b", "--", "./a", "./b/..."})
	if err != nil || o.id != "x" || !slices.Equal(o.flags, []string{"-p", "1", "-tags", "a b"}) || !slices.Equal(o.packages, []string{"./a", "./b/..."}) {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := parse([]string{"--", "--", "./a"}); err != nil || o.id == "" || len(o.flags) > 0 || len(o.packages) != 1 {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range [][]string{nil, {"--"}, {"--", "-p", "1"}, {"--", "-p", "1", "--"}, {"-nonsense"}, {"./a"}} {
		if o, err := parse(bad); err == nil {
			t.Errorf("%q is taken: %+v", bad, o)
		}
	}
}

func TestWithout(t *testing.T) {
	got := without([]string{"-p", "1", "-run", "X", "--run=Y", "-test.run=Z", "-count=3", "-tags", "run", "-v", "-shuffle", "on"}, "run", "count", "shuffle")
	if want := []string{"-p", "1", "-tags", "run", "-v"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
