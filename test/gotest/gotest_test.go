package gotest

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// results are those of a stream of events, with what was none.
func results(t *testing.T, stream string) (all []*Result, other string) {
	t.Helper()
	var rest bytes.Buffer
	c := newCollector()
	err := read(iotest.OneByteReader(strings.NewReader(stream)), func(e Event) {
		if r := c.take(e); r != nil {
			all = append(all, r)
		}
	}, &rest)
	if err != nil {
		t.Fatal(err)
	}
	return all, rest.String()
}

// failed is what go test says of a package with a subtest that fails, one that passes, and a test that passes.
const failed = `go: downloading something
{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestOK"}
{"Action":"output","Package":"p","Test":"TestOK","Output":"=== RUN   TestOK\n"}
{"Action":"output","Package":"p","Test":"TestOK","Output":"    a_test.go:3: silent\n"}
{"Action":"output","Package":"p","Test":"TestOK","Output":"--- PASS: TestOK (0.00s)\n"}
{"Action":"pass","Package":"p","Test":"TestOK","Elapsed":0}
{"Action":"run","Package":"p","Test":"TestBad"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"    a_test.go:4: one\n"}
{"Action":"run","Package":"p","Test":"TestBad/a/b"}
{"Action":"output","Package":"p","Test":"TestBad/a/b","Output":"=== RUN   TestBad/a/b\n"}
{"Action":"output","Package":"p","Test":"TestBad/a/b","Output":"    a_test.go:5: inner\n"}
{"Action":"output","Package":"p","Test":"TestBad/a/b","Output":"        --- FAIL: looks like an end\n"}
{"Action":"output","Package":"p","Test":"TestBad/a/b","Output":"    --- FAIL: TestBad/a/b (0.00s)\n"}
{"Action":"fail","Package":"p","Test":"TestBad/a/b","Elapsed":0}
{"Action":"run","Package":"p","Test":"TestBad/fine"}
{"Action":"output","Package":"p","Test":"TestBad/fine","Output":"    --- PASS: TestBad/fine (0.00s)\n"}
{"Action":"pass","Package":"p","Test":"TestBad/fine","Elapsed":0}
{"Action":"output","Package":"p","Test":"TestBad","Output":"--- FAIL: TestBad (0.01s)\n"}
{"Action":"fail","Package":"p","Test":"TestBad","Elapsed":0.01}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"output","Package":"p","Output":"goroutines are left\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.003s\n"}
{"Action":"fail","Package":"p","Elapsed":0.003}
`

func TestFailure(t *testing.T) {
	all, other := results(t, failed)
	if len(all) != 1 || other != "go: downloading something\n" {
		t.Fatalf("%d results, beside them %q", len(all), other)
	}
	r := all[0]
	if want := `--- FAIL: TestBad (0.01s)
    a_test.go:4: one
    --- FAIL: TestBad/a/b (0.00s)
        a_test.go:5: inner
            --- FAIL: looks like an end
goroutines are left
`; r.Failure() != want {
		t.Errorf("printed is\n%swant\n%s", r.Failure(), want)
	}
	if r.Closing != "FAIL\tp\t0.003s" || !r.FailedByTestsAlone() || !slices.Equal(r.Failed(), []string{"TestBad"}) || len(r.Unfinished()) != 0 ||
		!r.Passed("TestOK") || r.Passed("TestBad") || r.Passed("TestNone") || strings.Contains(r.Whole, r.Closing) {
		t.Errorf("%+v", r)
	}
	if got := r.OutputOf("TestOK"); got != "--- PASS: TestOK (0.00s)\n    a_test.go:3: silent\n" {
		t.Errorf("%q", got)
	}
}

// TestCutShort: a process that ends by itself has not had all of its tests, whatever the others did.
func TestCutShort(t *testing.T) {
	begin, rest, _ := strings.Cut(failed, `{"Action":"output","Package":"p","Output":"FAIL\n"}`)
	_, end, _ := strings.Cut(rest, "\n")
	for name, stream := range map[string]string{
		"behind a failed test": begin + end,
		"within a test":        begin + `{"Action":"run","Package":"p","Test":"TestCut"}` + "\n" + rest,
	} {
		all, _ := results(t, stream)
		if len(all) != 1 || all[0].Outcome != Fail || all[0].FailedByTestsAlone() {
			t.Errorf("%s: %+v", name, all)
		}
	}
	if all, _ := results(t, begin); len(all) != 0 {
		t.Errorf("a stream without end: %+v", all)
	}
	if all, _ := results(t, `{"Action":"fail","Package":"p","FailedBuild":"p"}`); len(all) != 1 || !all[0].Unbuilt || all[0].FailedByTestsAlone() {
		t.Errorf("a package that is not built: %+v", all)
	}
	broken := errors.New("the pipe is broken")
	if err := read(iotest.ErrReader(broken), func(Event) {}, &bytes.Buffer{}); !errors.Is(err, broken) {
		t.Errorf("a broken stream: %v", err)
	}
}
