package kinds

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/volumes/claims"
)

// ownersOf lists a tree: "path mode gid".
func ownersOf(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		all = append(all, fmt.Sprintf("%s %o %d", rel, st.Mode&0o7777, st.Gid))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFSGroup: all that a volume holds belongs to the pod's group, and nothing that it only points to.
func TestFSGroup(t *testing.T) {
	w := newWorld(t)
	outside := filepath.Join(t.TempDir(), "outside")
	err := errors.Join(os.Mkdir(outside, 0o700), os.WriteFile(filepath.Join(outside, "file"), nil, 0o600),
		os.MkdirAll(filepath.Join(w.data, "dir/below"), 0o700), os.WriteFile(filepath.Join(w.data, "dir/below/run"), nil, 0o700), os.Chmod(filepath.Join(w.data, "dir/below/run"), 0o700|os.ModeSetuid),
		os.Symlink(filepath.Join(outside, "file"), filepath.Join(w.data, "link")), os.Symlink(outside, filepath.Join(w.data, "way")), unix.Mkfifo(filepath.Join(w.data, "pipe"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	before := ownersOf(t, outside)
	v := w.pod("u")
	v.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4242))}
	w.setUp(v)
	want := []string{". 2775 4242", "dir 2770 4242", "dir/below 2770 4242", "dir/below/run 4760 4242", "kept 660 4242", "link 777 4242", "pipe 660 4242", "way 777 4242"}
	if got := ownersOf(t, w.data); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got := ownersOf(t, outside); !slices.Equal(got, before) {
		t.Errorf("outside of the volume: %v, before: %v", got, before)
	}
	if len(w.told) > 0 {
		t.Errorf("told: %q", w.told)
	}

	// Another pod has it at the same time, with another group.
	other := w.pod("other")
	other.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(77))}
	w.setUp(other)
	if got := ownersOf(t, w.data); !slices.Equal(got, want) {
		t.Errorf("taken from the first pod: %v", got)
	}
	if len(w.told) != 1 || w.told[0] != "Warning AlreadyMountedVolume The requested fsGroup is 77, but the volume v has GID 4242. The volume may not be shareable." {
		t.Errorf("told: %q", w.told)
	}
}

// TestFSGroupChangePolicy: where the root is as it should be, the rest is looked at or not, as the pod says.
func TestFSGroupChangePolicy(t *testing.T) {
	for policy, want := range map[v1.PodFSGroupChangePolicy]string{v1.FSGroupChangeAlways: "new 660 4242", v1.FSGroupChangeOnRootMismatch: "new 640 0"} {
		w := newWorld(t)
		v := w.pod("u")
		v.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4242)), FSGroupChangePolicy: &policy}
		w.setUp(v)
		w.down(v)
		if err := claims.Forget(filepath.Join(w.pods, "u")); err != nil {
			t.Fatal(err)
		}
		w.write("new", "")
		if err := os.Chown(filepath.Join(w.data, "new"), 0, 0); err != nil {
			t.Fatal(err)
		}
		w.setUp(v)
		if got := ownersOf(t, w.data); !slices.Contains(got, want) || !slices.Contains(got, "kept 660 4242") {
			t.Errorf("%s: %v", policy, got)
		}
	}
}

// TestFSGroupLeaves: paths of the host, and what is read-only, stay as they are.
func TestFSGroupLeaves(t *testing.T) {
	for name, change := range map[string]func(w *world, v *Volume){
		"a path of the host": func(w *world, _ *Volume) {
			w.volume.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: w.data}}
		},
		"read-only": func(_ *world, v *Volume) { v.Spec.PersistentVolumeClaim.ReadOnly = true },
	} {
		w := newWorld(t)
		before := ownersOf(t, w.data)
		v := w.pod("u")
		v.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4242))}
		change(w, v)
		w.setUp(v)
		if got := ownersOf(t, w.data); !slices.Equal(got, before) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestFSGroupTogether: of pods that start together the first one has the volume given to the group, before any of them has it, whatever the others have on record by then.
func TestFSGroupTogether(t *testing.T) {
	w := newWorld(t)
	var all []*Volume
	for _, uid := range []string{"one", "two", "three"} {
		v := w.pod(uid)
		v.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4242))}
		all = append(all, v)
		// Each is on record already, as if all had got so far at once.
		r := claims.Record{Volume: "pv", VolumeUID: "pv-uid", Source: claims.Local, Path: w.data, Mounted: true, Pending: true}
		if err := claims.Write(filepath.Join(w.pods, uid), "v", r); err != nil {
			t.Fatal(err)
		}
	}
	errs := make(chan error)
	for _, v := range all {
		go func() {
			err := w.kind.Setup(t.Context(), v)
			var st unix.Stat_t
			if err == nil {
				err = unix.Stat(filepath.Join(v.Dir, "kept"), &st)
			}
			if err == nil && (st.Gid != 4242 || st.Mode&groupMode != groupMode) {
				err = fmt.Errorf("%s was set up with files of the group %d, mode %o", v.Dir, st.Gid, st.Mode)
			}
			errs <- err
		}()
	}
	for range all {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for _, uid := range []string{"one", "two", "three"} {
		if r, err := claims.Read(filepath.Join(w.pods, uid), "v"); err != nil || r.Pending {
			t.Errorf("on record is %+v, %v", r, err)
		}
	}
}

// TestFSGroupAwaited: while a volume is made for a pod another one waits for it, no longer than it may; and a volume that an agent made and did not put on record as made is so.
func TestFSGroupAwaited(t *testing.T) {
	w := newWorld(t)
	unlock := w.kind.making.Wait("pv-uid")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v := w.pod("u")
	if err := w.kind.Setup(ctx, v); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "volume pv is being made for another pod") {
		t.Errorf("got %v", err)
	}
	unlock()
	w.setUp(v)
	r, err := claims.Read(filepath.Join(w.pods, "u"), "v")
	if err != nil || r.Pending {
		t.Fatalf("on record is %+v, %v", r, err)
	}
	r.Pending = true
	if err := claims.Write(filepath.Join(w.pods, "u"), "v", r); err != nil {
		t.Fatal(err)
	}
	asked := w.asked
	w.setUp(v)
	if r, err = claims.Read(filepath.Join(w.pods, "u"), "v"); err != nil || r.Pending || w.asked != asked {
		t.Errorf("on record is %+v, %v, asked for %d objects", r, err, w.asked-asked)
	}
}
