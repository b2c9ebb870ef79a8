package kinds

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestReadersSeeOneVersion: whoever reads while a volume changes finds files of one version.
func TestReadersSeeOneVersion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	version := func(s string) payload {
		return payload{"a": {data: []byte(s), mode: 0o644}, "b": {data: []byte(s), mode: 0o644}}
	}
	if err := replace(dir, version("0"), -1); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			// A reader that wants one version resolves the link once.
			target, err := os.Readlink(filepath.Join(dir, dataLink))
			if err != nil {
				t.Error(err)
				return
			}
			a, aerr := os.ReadFile(filepath.Join(dir, target, "a"))
			b, berr := os.ReadFile(filepath.Join(dir, target, "b"))
			if aerr == nil && berr == nil && string(a) != string(b) {
				t.Errorf("read %q and %q", a, b)
			}
			// A path through the link always leads somewhere.
			if _, err := os.Lstat(filepath.Join(dir, "a")); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 200 {
		if err := replace(dir, version(strings.Repeat("x", i)), -1); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
}

func TestPathsStayInside(t *testing.T) {
	for _, path := range []string{"../x", "/x", "a/../../x", "", ".", "..", "..data", "..data/x"} {
		if err := (payload{}).add(path, file{}); err == nil {
			t.Errorf("%q was taken", path)
		}
	}
	for _, path := range []string{"x", "a/b", "a/../b", ".x", "a..b"} {
		if err := (payload{}).add(path, file{}); err != nil {
			t.Error(err)
		}
	}
}

// A volume in memory is no larger than what the pod may have of it, or all pods.
func TestMemorySize(t *testing.T) {
	limited := func(memory ...string) *v1.Pod {
		p := &v1.Pod{}
		for _, m := range memory {
			c := v1.Container{}
			if m != "" {
				c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(m)}
			}
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
		return p
	}
	whole := limited("")
	whole.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("16Mi")}}
	overhead := limited("10Mi")
	overhead.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: resource.MustParse("2Mi")}
	for name, c := range map[string]struct {
		pod                *v1.Pod
		limit, allocatable string
		want               int64
	}{
		"all that pods may have":          {limited(""), "", "64Mi", 64 << 20},
		"its own limit":                   {limited(""), "1Mi", "64Mi", 1 << 20},
		"a limit of nothing is none":      {limited(""), "0", "64Mi", 64 << 20},
		"a limit above what there is":     {limited(""), "1Gi", "64Mi", 64 << 20},
		"the pod's memory":                {limited("10Mi", "20Mi"), "", "64Mi", 30 << 20},
		"a container without a limit":     {limited("10Mi", ""), "", "64Mi", 64 << 20},
		"the pod's memory, above its own": {limited("10Mi"), "4Mi", "64Mi", 4 << 20},
		"its own, above the pod's memory": {limited("10Mi"), "40Mi", "64Mi", 10 << 20},
		"more than there is":              {limited("100Mi"), "", "64Mi", 64 << 20},
		"the pod's as a whole":            {whole, "", "64Mi", 16 << 20},
		"its overhead":                    {overhead, "", "64Mi", 12 << 20},
		"nothing is known":                {limited(""), "", "0", 0},
		"nothing is known but the pod's":  {limited("10Mi"), "", "0", 10 << 20},
	} {
		m := emptyDir{cfg: Config{Allocatable: func() v1.ResourceList { return v1.ResourceList{v1.ResourceMemory: resource.MustParse(c.allocatable)} }}}
		e := &v1.EmptyDirVolumeSource{}
		if c.limit != "" {
			e.SizeLimit = new(resource.MustParse(c.limit))
		}
		if got := m.memorySize(c.pod, e); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestHostPath(t *testing.T) {
	dir := t.TempDir()
	exists := filepath.Join(dir, "file")
	if err := os.WriteFile(exists, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.Symlink("behind", link)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		kind v1.HostPathType
		ok   bool
	}{
		{dir, v1.HostPathDirectory, true}, {exists, v1.HostPathDirectory, false}, {exists, v1.HostPathFile, true}, {dir, v1.HostPathFile, false},
		{dir + "/none", v1.HostPathDirectory, false}, {dir + "/none", v1.HostPathUnset, true},
		{dir + "/none", v1.HostPathDirectory, true}, {exists, v1.HostPathUnset, true}, {exists + "/below", v1.HostPathUnset, true}, {dir + "/new/dir", v1.HostPathDirectoryOrCreate, true},
		{dir + "/newfile", v1.HostPathFileOrCreate, true}, {dir, v1.HostPathFileOrCreate, false}, {"/dev/null", v1.HostPathCharDev, true},
		{"/dev/null", v1.HostPathBlockDev, false}, {exists, v1.HostPathSocket, false}, {dir, "Odd", false},
		// What waits for somebody when it is opened is not opened.
		{pipe, v1.HostPathFileOrCreate, false}, {pipe, v1.HostPathFile, false}, {pipe, v1.HostPathSocket, false}, {pipe, v1.HostPathBlockDev, false}, {pipe, v1.HostPathCharDev, false},
		{pipe, v1.HostPathDirectory, false}, {pipe, v1.HostPathDirectoryOrCreate, false}, {pipe, v1.HostPathUnset, true}, {"/dev/null", v1.HostPathFileOrCreate, false},
		{link, v1.HostPathFileOrCreate, true}, {filepath.Join(dir, "behind"), v1.HostPathFile, true},
	} {
		checked := make(chan error)
		go func() { checked <- checkHostPath(&v1.HostPathVolumeSource{Path: c.path, Type: &c.kind}) }()
		var err error
		select {
		case err = <-checked:
		case <-time.After(time.Minute):
			t.Fatalf("%s as %q is waited for", c.path, c.kind)
		}
		if (err == nil) != c.ok {
			t.Errorf("%s as %q: %v", c.path, c.kind, err)
		}
		if word, known := wordOf[c.kind]; err != nil && known && !strings.Contains(string(c.kind), "OrCreate") && !strings.Contains(err.Error(), "hostPath type check failed: "+c.path+" is not a "+word) {
			t.Errorf("%s as %q: %v, which is not what a kubelet says", c.path, c.kind, err)
		}
	}
}
