package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ns"
)

const mappedUID, mappedGID = 300_000, 400_000

// withUser calls f with a user namespace. On a kernel that cannot translate, f is not called, after it was seen that this is said.
func withUser(t testing.TB, dir string, f func(userns *os.File)) {
	t.Helper()
	m := ns.Mappings{UIDs: []ns.IDMap{{HostID: mappedUID, Length: 65536}}, GIDs: []ns.IDMap{{HostID: mappedGID, Length: 65536}}}
	must(t, ns.WithUser(m, func(userns *os.File) error {
		err := TryIDMapped(dir, userns, mappedUID)
		if left, rerr := filepath.Glob(filepath.Join(dir, "monopod-check-*")); rerr != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, rerr)
		}
		if errdefs.IsFailedPrecondition(err) {
			t.Logf("this host's limit is told: %v", err)
			source, target := mkdir(t, dir, "limit", "s"), mkdir(t, dir, "limit", "t")
			must(t, Tmpfs(source, TmpfsOptions{}))
			if err := IDMap(source, target, userns); !errdefs.IsFailedPrecondition(err) {
				t.Errorf("and yet IDMap of a tmpfs says %v", err)
			}
			return nil
		}
		must(t, err)
		f(userns)
		return nil
	}))
}

func owner(t testing.TB, path string) string {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	return fmt.Sprintf("%d:%d", st.Uid, st.Gid)
}

func TestIDMap(t *testing.T) {
	dir := scratch(t)
	withUser(t, dir, func(userns *os.File) {
		source, target := mkdir(t, dir, "source"), mkdir(t, dir, "target")
		file := filepath.Join(source, "file")
		must(t, os.WriteFile(file, nil, 0o644))
		must(t, os.Chown(file, 7, 8))
		must(t, IDMap(source, target, userns))
		if got, want := owner(t, filepath.Join(target, "file")), fmt.Sprintf("%d:%d", mappedUID+7, mappedGID+8); got != want {
			t.Errorf("owner %s, want %s", got, want)
		}
		if got := owner(t, file); got != "7:8" {
			t.Errorf("the file itself now belongs to %s", got)
		}
		must(t, CheckIDMap(source, userns))
		for _, f := range []func() error{
			func() error { return CheckIDMap("/proc", userns) }, func() error { return IDMap("/proc", mkdir(t, dir, "p"), userns) },
			func() error { return CheckIDMap(target, userns) }, // it is translated
		} {
			if err := f(); !errdefs.IsFailedPrecondition(err) {
				t.Errorf("what cannot be translated: %v", err)
			}
		}
		if err := IDMap(filepath.Join(dir, "missing"), target, userns); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a missing source: %v", err)
		}
	})
}

func TestOverlayIDMapped(t *testing.T) {
	for _, n := range []int{1, 3, 40} {
		for _, apart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d layers, apart %t", n, apart), func(t *testing.T) {
				dir := scratch(t)
				withUser(t, dir, func(userns *os.File) {
					lower := layers(t, mkdir(t, dir, "layers"), n, "l")
					must(t, os.Chown(filepath.Join(lower[n-1], "own"+fmt.Sprintf("%03d", n-1)), 7, 8))
					if apart { // each on a mount of its own
						for _, l := range lower {
							must(t, Bind(l, l, BindOptions{}))
						}
					}
					upper, work, target, tmp := mkdir(t, dir, "upper"), mkdir(t, dir, "work"), mkdir(t, dir, "target"), mkdir(t, dir, "tmp")
					must(t, os.Chown(upper, mappedUID, mappedGID))
					must(t, OverlayIDMapped(target, lower, upper, work, "", userns, tmp))
					for path, want := range map[string]string{
						"": fmt.Sprintf("%d:%d", mappedUID, mappedGID), "common": fmt.Sprintf("%d:%d", mappedUID, mappedGID),
						fmt.Sprintf("own%03d", n-1): fmt.Sprintf("%d:%d", mappedUID+7, mappedGID+8),
					} {
						if got := owner(t, filepath.Join(target, path)); got != want {
							t.Errorf("%q belongs to %s, want %s", path, got, want)
						}
					}
					if got, err := os.ReadFile(filepath.Join(target, "common")); string(got) != "layer 0" {
						t.Errorf("the topmost layer is not on top: %q, %v", got, err)
					}
					// What is copied up keeps the owner that it shows.
					must(t, os.WriteFile(filepath.Join(target, "common"), []byte("changed"), 0o644))
					if got, want := owner(t, filepath.Join(upper, "common")), fmt.Sprintf("%d:%d", mappedUID, mappedGID); got != want {
						t.Errorf("copied up it belongs to %s, want %s", got, want)
					}
					view := mkdir(t, dir, "view")
					must(t, OverlayIDMapped(view, lower, "", "", "", userns, tmp))
					if got, want := owner(t, filepath.Join(view, "common")), fmt.Sprintf("%d:%d", mappedUID, mappedGID); got != want {
						t.Errorf("read-only: %s, want %s", got, want)
					}
					if err := os.WriteFile(filepath.Join(view, "new"), nil, 0o644); err == nil {
						t.Error("a read-only overlay was written to")
					}
					if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
						t.Errorf("left in the scratch directory: %v, %v", left, err)
					}
				})
			})
		}
	}
}

func TestOverlayIDMappedRefused(t *testing.T) {
	dir := scratch(t)
	withUser(t, dir, func(userns *os.File) {
		target, tmp, there := mkdir(t, dir, "target"), mkdir(t, dir, "tmp"), mkdir(t, dir, "there")
		for name, lower := range map[string][]string{"none": nil, "missing": {there, filepath.Join(dir, "missing")}} {
			if err := OverlayIDMapped(target, lower, "", "", "", userns, tmp); err == nil {
				t.Errorf("%s: mounted", name)
			}
		}
		if err := OverlayIDMapped(target, []string{there, target}, there, "", "", userns, tmp); !errdefs.IsInvalidArgument(err) {
			t.Errorf("upper without work: %v", err)
		}
		if got, err := Below(dir); err != nil || !slices.Equal(got, []string{dir}) {
			t.Errorf("left mounted: %v, %v", got, err)
		}
	})
}

func TestCommon(t *testing.T) {
	dir := scratch(t)
	a, b := mkdir(t, dir, "x", "1", "fs"), mkdir(t, dir, "x", "22", "fs")
	sources, parts, err := common([]string{b, a})
	if err != nil || !slices.Equal(sources, []string{filepath.Join(dir, "x")}) || !slices.Equal(parts, []part{{below: "22/fs"}, {below: "1/fs"}}) {
		t.Errorf("%v, %v, %v", sources, parts, err)
	}
	if sources, parts, err := common([]string{a}); err != nil || !slices.Equal(sources, []string{a}) || !slices.Equal(parts, []part{{}}) {
		t.Errorf("one layer: %v, %v, %v", sources, parts, err)
	}
}

func TestTmpfsOwner(t *testing.T) {
	dir := scratch(t)
	target := mkdir(t, dir, "shm")
	must(t, Tmpfs(target, TmpfsOptions{UID: mappedUID, GID: mappedGID}))
	if got, want := owner(t, target), fmt.Sprintf("%d:%d", mappedUID, mappedGID); got != want {
		t.Errorf("owner %s, want %s", got, want)
	}
}
