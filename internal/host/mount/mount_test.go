package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// scratch returns a tmpfs that is gone after the test with all that is mounted in it. It is not on the disk, which may
// be an overlay itself, and so unfit for an upper directory.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mpmnt")
	if err != nil {
		t.Fatal(err)
	}
	if err := Tmpfs(dir, TmpfsOptions{Size: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := UnmountBelow(dir); err != nil {
			t.Error(err)
		}
		if left, err := Below(dir); err != nil || len(left) > 0 {
			t.Errorf("left mounted: %v (%v)", left, err)
		}
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mkdir(t testing.TB, elems ...string) string {
	t.Helper()
	dir := filepath.Join(elems...)
	must(t, os.MkdirAll(dir, 0o755))
	return dir
}

// layers makes n directories, topmost first; each holds a file of its own and one that all have.
func layers(t testing.TB, dir string, n int, name string) (all []string) {
	t.Helper()
	for i := range n {
		layer := mkdir(t, dir, fmt.Sprintf("%s%03d", name, i))
		must(t, os.WriteFile(filepath.Join(layer, fmt.Sprintf("own%03d", i)), nil, 0o644))
		must(t, os.WriteFile(filepath.Join(layer, "common"), fmt.Appendf(nil, "layer %d", i), 0o644))
		all = append(all, layer)
	}
	return all
}

func TestOverlay(t *testing.T) {
	ways := map[string]func(target string, lower []string, upper, work, label string) error{"Overlay": Overlay, "context": overlayByContext, "options": overlayByOptions}
	for _, c := range []struct {
		name   string
		layers int
		layer  string
	}{
		{"one layer", 1, "l"},
		{"three layers", 3, "l"},
		{"200 layers", 200, "l"},
		{"long paths", 30, strings.Repeat("a-long-name", 20)},
		{"path beyond 255 bytes", 2, strings.Repeat("x", 120) + "/" + strings.Repeat("y", 150)},
		{"separators in the path", 3, `odd:na,me\`},
	} {
		for way, overlay := range ways {
			t.Run(c.name+"/"+way, func(t *testing.T) {
				dir := scratch(t)
				lower := layers(t, dir, c.layers, c.layer)
				upper, work, target := mkdir(t, dir, "upper"), mkdir(t, dir, "work"), mkdir(t, dir, "target")
				err := overlay(target, lower, upper, work, "")
				if way == "context" && errors.Is(err, errNoContext) {
					t.Log("this kernel mounts by options only")
					return
				}
				must(t, err)
				for i := range lower {
					if _, err := os.Stat(filepath.Join(target, fmt.Sprintf("own%03d", i))); err != nil {
						t.Error(err)
					}
				}
				if got, err := os.ReadFile(filepath.Join(target, "common")); string(got) != "layer 0" {
					t.Errorf("the topmost layer is not on top: %q, %v", got, err)
				}
				must(t, os.WriteFile(filepath.Join(target, "common"), []byte("changed"), 0o644))
				if got, err := os.ReadFile(filepath.Join(upper, "common")); string(got) != "changed" {
					t.Errorf("upper holds %q, %v", got, err)
				}
				if got, err := os.ReadFile(filepath.Join(lower[0], "common")); string(got) != "layer 0" {
					t.Errorf("a layer was changed: %q, %v", got, err)
				}
				must(t, Unmount(target))
			})
		}
	}
}

func TestOverlayOf400Layers(t *testing.T) {
	dir := scratch(t)
	lower := layers(t, dir, 400, "l")
	target := mkdir(t, dir, "target")
	err := Overlay(target, lower, mkdir(t, dir, "upper"), mkdir(t, dir, "work"), "")
	if errdefs.IsFailedPrecondition(err) {
		t.Logf("this kernel's limit is told: %v", err)
		return
	}
	must(t, err)
	if err := overlayByOptions(target, lower, filepath.Join(dir, "upper"), filepath.Join(dir, "work"), ""); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("400 layers as options: %v, want FailedPrecondition", err)
	}
}

func TestOverlayReadOnly(t *testing.T) {
	for _, n := range []int{1, 3} {
		dir := scratch(t)
		target := mkdir(t, dir, "target")
		must(t, Overlay(target, layers(t, dir, n, "l"), "", "", ""))
		if got, err := os.ReadFile(filepath.Join(target, "common")); string(got) != "layer 0" {
			t.Errorf("%d layers: %q, %v", n, got, err)
		}
		if err := os.WriteFile(filepath.Join(target, "new"), nil, 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("%d layers: write: %v, want EROFS", n, err)
		}
	}
}

func TestOverlayRefused(t *testing.T) {
	dir := scratch(t)
	target, there := mkdir(t, dir, "target"), mkdir(t, dir, "there")
	missing := filepath.Join(dir, "missing")
	for name, c := range map[string]struct {
		lower       []string
		upper, work string
		names       string
	}{
		"no layer":        {nil, there, there, "no lower directory"},
		"work is missing": {[]string{there}, there, "", "give both"},
		"layer not there": {[]string{there, missing}, mkdir(t, dir, "u"), mkdir(t, dir, "w"), "missing"},
		"upper not there": {[]string{there}, missing, mkdir(t, dir, "w"), "missing"},
	} {
		err := Overlay(target, c.lower, c.upper, c.work, "")
		if err == nil || !strings.Contains(err.Error(), c.names) || !strings.Contains(err.Error(), target) {
			t.Errorf("%s: %v, want an error with %q and the target", name, err, c.names)
		}
	}
	if mounts, err := Below(target); err != nil || len(mounts) > 0 {
		t.Errorf("left mounted: %v, %v", mounts, err)
	}
}

func TestTmpfs(t *testing.T) {
	dir := scratch(t)
	var st unix.Statfs_t
	target := mkdir(t, dir, "a")
	must(t, Tmpfs(target, TmpfsOptions{Size: 1 << 20, Mode: 0o1750, NoExec: true}))
	must(t, unix.Statfs(target, &st))
	if size := st.Blocks * uint64(st.Bsize); size != 1<<20 {
		t.Errorf("size %d", size)
	}
	if want := int64(unix.ST_NOEXEC | unix.ST_NOSUID | unix.ST_NODEV); st.Flags&want != want {
		t.Errorf("flags %#x, want %#x", st.Flags, want)
	}
	if info, err := os.Stat(target); err != nil || info.Mode() != fs.ModeDir|fs.ModeSticky|0o750 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	target = mkdir(t, dir, "b")
	must(t, Tmpfs(target, TmpfsOptions{}))
	if info, err := os.Stat(target); err != nil || info.Mode() != fs.ModeDir|fs.ModeSticky|0o777 {
		t.Errorf("default mode %v, %v", info.Mode(), err)
	}
}

func TestBind(t *testing.T) {
	dir := scratch(t)
	source := mkdir(t, dir, "source")
	must(t, Tmpfs(mkdir(t, source, "inner"), TmpfsOptions{}))
	must(t, os.WriteFile(filepath.Join(source, "inner", "f"), nil, 0o644))

	plain := mkdir(t, dir, "plain")
	must(t, Bind(source, plain, BindOptions{}))
	if _, err := os.Stat(filepath.Join(plain, "inner", "f")); !os.IsNotExist(err) {
		t.Errorf("a plain bind mount shows what is mounted in its source: %v", err)
	}
	all := mkdir(t, dir, "all")
	must(t, Bind(source, all, BindOptions{Recursive: true, ReadOnly: true}))
	for _, f := range []string{"new", "inner/f"} {
		if err := os.WriteFile(filepath.Join(all, f), nil, 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("write %s: %v, want EROFS", f, err)
		}
	}
	must(t, os.WriteFile(filepath.Join(source, "new"), nil, 0o644))

	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o644))
	must(t, Bind(filepath.Join(source, "new"), file, BindOptions{ReadOnly: true}))
	if p, err := PropagationOf(file); err != nil || p.Shared || p.Slave {
		t.Errorf("PropagationOf(file) = %+v, %v", p, err)
	}
}

func TestUnmount(t *testing.T) {
	dir := scratch(t)
	target := mkdir(t, dir, "target")
	for _, path := range []string{target, filepath.Join(dir, "missing"), filepath.Join(dir, "missing", "below")} {
		if err := Unmount(path); err != nil {
			t.Errorf("nothing mounted at %s: %v", path, err)
		}
	}
	must(t, Tmpfs(target, TmpfsOptions{}))
	link := filepath.Join(dir, "link")
	must(t, os.Symlink(target, link))
	must(t, Unmount(link))
	if mounts, err := Below(target); err != nil || len(mounts) != 1 {
		t.Errorf("Unmount followed a link: %v, %v", mounts, err)
	}
	busy, err := os.Create(filepath.Join(target, "open"))
	must(t, err)
	defer busy.Close()
	must(t, Unmount(target))
	if mounts, err := Below(target); err != nil || len(mounts) != 0 {
		t.Errorf("a busy mount stays: %v, %v", mounts, err)
	}
}

func TestBelow(t *testing.T) {
	dir := scratch(t)
	a := mkdir(t, dir, "a")
	must(t, Tmpfs(a, TmpfsOptions{}))
	b := mkdir(t, a, "b")
	must(t, Tmpfs(b, TmpfsOptions{}))
	must(t, Tmpfs(b, TmpfsOptions{}))
	must(t, Tmpfs(mkdir(t, dir, "ab"), TmpfsOptions{})) // not below a
	link := filepath.Join(dir, "link")
	must(t, os.Symlink(a, link))
	for _, path := range []string{a, link} {
		if got, err := Below(path); err != nil || !slices.Equal(got, []string{b, b, a}) {
			t.Errorf("Below(%s) = %v, %v", path, got, err)
		}
	}
	if got, err := Below(filepath.Join(dir, "missing")); err != nil || len(got) != 0 {
		t.Errorf("Below(missing) = %v, %v", got, err)
	}
	must(t, UnmountBelow(a))
	must(t, UnmountBelow(a))
	if got, err := Below(a); err != nil || len(got) != 0 {
		t.Errorf("after UnmountBelow: %v, %v", got, err)
	}
}

func TestPropagationOf(t *testing.T) {
	dir := scratch(t)
	target := mkdir(t, dir, "target")
	must(t, Tmpfs(target, TmpfsOptions{}))
	inside := mkdir(t, target, "inside")
	for _, c := range []struct {
		flag uintptr
		want Propagation
	}{
		{unix.MS_PRIVATE, Propagation{}},
		{unix.MS_SHARED, Propagation{Shared: true}},
		{unix.MS_PRIVATE, Propagation{}},
	} {
		must(t, unix.Mount("", target, "", c.flag, ""))
		if got, err := PropagationOf(inside); err != nil || got != c.want {
			t.Errorf("flag %#x: %+v, %v", c.flag, got, err)
		}
	}
	must(t, unix.Mount("", target, "", unix.MS_SHARED, ""))
	slave := mkdir(t, dir, "slave")
	must(t, unix.Mount(target, slave, "", unix.MS_BIND, ""))
	must(t, unix.Mount("", slave, "", unix.MS_SLAVE, ""))
	if got, err := PropagationOf(slave); err != nil || got != (Propagation{Slave: true}) {
		t.Errorf("slave: %+v, %v", got, err)
	}
}

func TestIsolate(t *testing.T) {
	dir := scratch(t)
	must(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
	volume := filepath.Join("/tmp", filepath.Base(dir)+"v")
	must(t, os.Mkdir(volume, 0o700))
	t.Cleanup(func() {
		if err := errors.Join(UnmountBelow(volume), os.Remove(volume)); err != nil {
			t.Error(err)
		}
	})
	inner := mkdir(t, dir, "containers")
	must(t, Isolate(inner))
	must(t, Isolate(inner))
	root := mkdir(t, inner, "root")
	must(t, Tmpfs(root, TmpfsOptions{}))
	must(t, Bind(dir, volume, BindOptions{Recursive: true}))
	if got, err := Below(volume); err != nil || !slices.Equal(got, []string{volume}) {
		t.Errorf("a recursive bind mount took along %v, %v", got, err)
	}
	must(t, Bind(root, mkdir(t, dir, "elsewhere"), BindOptions{}))
	must(t, UnmountBelow(inner))
	if got, err := Below(inner); err != nil || len(got) != 0 {
		t.Errorf("left: %v, %v", got, err)
	}
}

func TestSeparate(t *testing.T) {
	for name, before := range map[string]func(dir string){
		"a directory":              func(string) {},
		"a mount that a kill left": func(dir string) { must(t, unix.Mount(dir, dir, "", unix.MS_BIND, "")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := scratch(t)
			must(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
			peer, pods := scratch(t), mkdir(t, dir, "pods")
			must(t, unix.Mount(dir, peer, "", unix.MS_BIND, ""))
			before(pods)
			must(t, Separate(pods))
			pod := mkdir(t, pods, "pod")
			must(t, Tmpfs(pod, TmpfsOptions{}))
			must(t, Separate(pods)) // what is mounted there stays
			want := []string{pod, pods}
			if got, err := Below(pods); err != nil || !slices.Equal(got, want) {
				t.Errorf("mounted: %v, %v, want %v", got, err, want)
			}
			if p, err := PropagationOf(pods); err != nil || p != (Propagation{}) {
				t.Errorf("it propagates: %v, %v", p, err)
			}
			if is, err := Is(filepath.Join(peer, "pods", "pod")); err != nil || is {
				t.Errorf("what is mounted in it is sent to others: %t, %v", is, err)
			}
			must(t, Bind(pods, mkdir(t, dir, "elsewhere"), BindOptions{}))
			must(t, errors.Join(Unmount(pod), Unmount(pods)))
			if is, err := Is(pods); err != nil || is {
				t.Errorf("after Unmount it is a mount: %t, %v", is, err)
			}
		})
	}
}

func TestBindClean(t *testing.T) {
	for name, p := range map[string]Propagation{"private": {}, "slave": {Slave: true}, "shared": {Shared: true}} {
		t.Run(name, func(t *testing.T) {
			dir, elsewhere := scratch(t), scratch(t)
			must(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
			apart, sub := mkdir(t, dir, "run", "containers"), mkdir(t, dir, "sub")
			must(t, Isolate(apart))
			must(t, Tmpfs(mkdir(t, apart, "root"), TmpfsOptions{}))
			must(t, Tmpfs(sub, TmpfsOptions{}))
			must(t, Tmpfs(mkdir(t, sub, "deep"), TmpfsOptions{}))

			copied := mkdir(t, elsewhere, "copy")
			must(t, BindClean(dir, copied, p))
			want := []string{filepath.Join(copied, "sub", "deep"), filepath.Join(copied, "sub"), copied}
			if got, err := Below(copied); err != nil || !slices.Equal(got, want) {
				t.Errorf("the copy holds %v, %v; want %v", got, err, want)
			}
			must(t, Tmpfs(mkdir(t, dir, "later"), TmpfsOptions{}))
			must(t, Tmpfs(mkdir(t, copied, "back"), TmpfsOptions{}))
			there, err := Below(copied)
			must(t, err)
			if got, want := slices.Contains(there, filepath.Join(copied, "later")), p != (Propagation{}); got != want {
				t.Errorf("what the host mounts later is in the copy: %t, want %t", got, want)
			}
			here, err := Below(dir)
			must(t, err)
			if got := slices.Contains(here, filepath.Join(dir, "back")); got != p.Shared {
				t.Errorf("what is mounted in the copy is on the host: %t, want %t", got, p.Shared)
			}
			must(t, UnmountBelow(copied))
			if after, err := Below(dir); err != nil || !slices.Equal(after, here) {
				t.Errorf("unmounting the copy made %v of %v, %v", after, here, err)
			}
			if got, err := Below(copied); err != nil || len(got) != 0 {
				t.Errorf("left of the copy: %v, %v", got, err)
			}
			must(t, BindClean(dir, copied, p))
			for range 2 {
				must(t, Detach(copied))
			}
			if after, err := Below(dir); err != nil || !slices.Equal(after, here) {
				t.Errorf("detaching the copy made %v of %v, %v", after, here, err)
			}
			if got, err := Below(copied); err != nil || len(got) != 0 {
				t.Errorf("left of the detached copy: %v, %v", got, err)
			}
			must(t, Unmount(filepath.Join(sub, "deep")))
			must(t, os.Remove(filepath.Join(sub, "deep")))
			err = BindClean(apart, copied, p)
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), apart) {
				t.Errorf("a source that is set apart: %v", err)
			}
		})
	}
}

func TestRecursiveReadOnly(t *testing.T) {
	dir := scratch(t)
	source, target := mkdir(t, dir, "source"), mkdir(t, dir, "target")
	err := Bind(source, target, BindOptions{Recursive: true, ReadOnly: true})
	if got := RecursiveReadOnly(); got != (err == nil) {
		t.Errorf("RecursiveReadOnly() = %t, and a recursive read-only bind mount says %v", got, err)
	}
}

func BenchmarkOverlay(b *testing.B) {
	dir := scratch(b)
	lower := layers(b, dir, 10, "l")
	upper, work, target := mkdir(b, dir, "upper"), mkdir(b, dir, "work"), mkdir(b, dir, "target")
	for b.Loop() {
		must(b, Overlay(target, lower, upper, work, ""))
		must(b, Unmount(target))
	}
}
