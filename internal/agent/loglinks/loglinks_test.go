package loglinks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fixture is a node with a directory of logs.
type fixture struct {
	*testing.T
	*Links
	dir string
}

func start(t *testing.T) *fixture {
	dir := t.TempDir()
	return &fixture{T: t, Links: New(Config{Dir: filepath.Join(dir, "log", "containers"), LogsDir: filepath.Join(dir, "log", "pods") + "/"}), dir: dir}
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// log makes a log below the directory of logs.
func (f *fixture) log(name string) string {
	f.Helper()
	path := filepath.Join(f.dir, "log", "pods", name)
	f.must(os.MkdirAll(filepath.Dir(path), 0o755))
	f.must(os.WriteFile(path, []byte(name), 0o600))
	return path
}

// names are all that is in the directory of links, with what they show.
func (f *fixture) names() string {
	f.Helper()
	entries, err := os.ReadDir(f.cfg.Dir)
	if err != nil && !os.IsNotExist(err) {
		f.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(f.cfg.Dir, e.Name()))
		if err != nil {
			content = []byte("nothing")
		}
		names = append(names, e.Name()+"="+string(content))
	}
	return strings.Join(names, " ")
}

func (f *fixture) want(what, want string) {
	f.Helper()
	if got := f.names(); got != want {
		f.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestLinks(t *testing.T) {
	f := start(t)
	f.must(f.Sweep(nil)) // nothing is there yet
	a, b := Container{"p", "ns", "a", "1111"}, Container{"p", "ns", "b", "2222"}
	f.must(f.Link(a, f.dir+"/log/pods/ns_p_u/a/0.log"))
	f.want("without a log", "")
	for range 2 {
		f.must(f.Link(a, f.log("ns_p_u/a/0.log")))
		f.must(f.Link(b, f.log("ns_p_u/b/0.log")))
	}
	f.want("two containers", "p_ns_a-1111.log=ns_p_u/a/0.log p_ns_b-2222.log=ns_p_u/b/0.log")
	f.must(f.Link(Container{"p", "ns", "a", "3333"}, f.log("ns_p_u/a/1.log")))
	for range 2 {
		f.must(f.Remove(a))
	}
	f.want("one was replaced", "p_ns_a-3333.log=ns_p_u/a/1.log p_ns_b-2222.log=ns_p_u/b/0.log")

	// A pod of the same name has come after it.
	f.must(f.Link(Container{"p", "ns", "a", "4444"}, f.log("ns_p_v/a/0.log")))
	f.must(f.Link(Container{"p", "nsx", "a", "5555"}, f.log("nsx_p_u/a/0.log")))
	f.must(f.RemovePod("ns", "p", f.dir+"/log/pods/ns_p_u"))
	f.want("the pod is gone", "p_ns_a-4444.log=ns_p_v/a/0.log p_nsx_a-5555.log=nsx_p_u/a/0.log")
}

func TestSweep(t *testing.T) {
	f := start(t)
	f.must(f.Link(Container{"p", "ns", "a", "1111"}, f.log("ns_p_u/a/0.log")))
	f.must(f.Link(Container{"p", "ns", "b", "2222"}, f.log("ns_p_u/b/0.log")))
	f.must(f.Link(Container{"q", "ns", "c-d", "3333"}, f.log("ns_q_u/c-d/0.log")))
	// While a kubelet rotates a log it has another name, and the next one is not there yet.
	f.must(os.Rename(f.dir+"/log/pods/ns_p_u/a/0.log", f.dir+"/log/pods/ns_p_u/a/0.log.20260101-000000"))
	f.must(os.RemoveAll(f.dir + "/log/pods/ns_q_u"))
	// What others have there.
	f.must(os.Symlink(f.dir+"/other/pods/x/0.log", filepath.Join(f.cfg.Dir, "other_ns_x-4444.log")))
	f.must(os.Symlink("../pods/gone", filepath.Join(f.cfg.Dir, "relative_ns_x-4444.log")))
	f.must(os.Symlink(f.dir+"/log/pods/../../gone", filepath.Join(f.cfg.Dir, "up_ns_x-4444.log")))
	f.must(os.Symlink(f.dir+"/log/pods/gone", filepath.Join(f.cfg.Dir, "no-log")))
	f.must(os.WriteFile(filepath.Join(f.cfg.Dir, "file_ns_x-5555.log"), []byte("mine"), 0o600))
	others := "file_ns_x-5555.log=mine no-log=nothing other_ns_x-4444.log=nothing "
	rest := " relative_ns_x-4444.log=nothing up_ns_x-4444.log=nothing"
	f.must(f.Sweep(func(id string) bool { return id == "1111" }))
	f.want("one is being rotated", others+"p_ns_a-1111.log=nothing p_ns_b-2222.log=ns_p_u/b/0.log"+rest)
	f.log("ns_p_u/a/0.log")
	f.want("it was rotated", others+"p_ns_a-1111.log=ns_p_u/a/0.log p_ns_b-2222.log=ns_p_u/b/0.log"+rest)
	f.must(f.Remove(Container{"file", "ns", "x", "5555"}))
	f.must(f.Remove(Container{"other", "ns", "x", "4444"}))
	f.must(os.RemoveAll(f.dir + "/log/pods"))
	f.must(f.Sweep(nil))
	f.want("all logs are gone", strings.TrimSpace(others)+rest)
}

// A name that is too long is cut, as by a kubelet: then it is not known any more whose it is.
func TestLongNames(t *testing.T) {
	f := start(t)
	long := strings.Repeat("p", 253)
	a, b := Container{long, "ns", "a", "1111"}, Container{long, "ns", "b", "2222"}
	f.must(f.Link(a, f.log("l/a/0.log")))
	f.must(f.Link(b, f.log("l/b/0.log")))
	f.must(f.Remove(a))
	name := strings.Repeat("p", 251) + ".log"
	f.want("the last one's", name+"=l/b/0.log")
	f.must(f.RemovePod("ns", long, f.dir+"/log/pods/l"))
	f.want("the pod is gone", "")
	if err := f.Link(Container{"a/b", "ns", "c", "1"}, f.log("l/a/0.log")); err == nil {
		t.Error("a name that leads elsewhere")
	}
	if err := f.Remove(Container{"p", "ns", "c", ""}); err == nil {
		t.Error("a container without an ID")
	}
}

func TestWithoutLinks(t *testing.T) {
	l := New(Config{LogsDir: "/var/log/pods"})
	for _, err := range []error{l.Link(Container{}, "/"), l.Remove(Container{}), l.RemovePod("ns", "p", "/var/log/pods/x"), l.Sweep(nil)} {
		if err != nil {
			t.Error(err)
		}
	}
}
