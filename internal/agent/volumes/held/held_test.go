package held

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/quota"
	"monopod.dev/monopod/test/smallfs"
)

const mega = 1 << 20

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// place is a volume's, in the directory of a pod.
type place struct{ pod, name, dir string }

func newPlace(t *testing.T, at, uid string) place {
	t.Helper()
	p := place{pod: filepath.Join(at, uid), name: "v"}
	p.dir = filepath.Join(p.pod, "volumes", p.name)
	must(t, os.MkdirAll(filepath.Dir(p.dir), 0o750))
	return p
}

func (p place) make(t *testing.T, size int64) bool {
	t.Helper()
	is, err := Make(p.pod, p.name, p.dir, 0o777, size)
	must(t, err)
	return is
}

// fill removes what is there, which a full volume lets one do, and writes as a pod does until it cannot, or 64 megabytes are reached. It returns how much there was room for.
func (p place) fill(t *testing.T) (n int) {
	t.Helper()
	smallfs.Unprivileged(t, func() {
		must(t, os.RemoveAll(filepath.Join(p.dir, "f")))
		f, err := os.Create(filepath.Join(p.dir, "f"))
		must(t, err)
		defer f.Close()
		block := bytes.Repeat([]byte("data of a pod..."), mega/16)
		for n < 64*mega {
			w, err := f.Write(block)
			n += w
			if err == nil {
				err = f.Sync()
			}
			if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
				return
			}
			must(t, err)
		}
	})
	return n
}

func (p place) gone(t *testing.T) {
	t.Helper()
	must(t, Release(p.pod, p.name, p.dir))
	must(t, os.RemoveAll(p.dir))
	must(t, Forget(p.pod))
}

// TestSizesHold: a volume is held to its size while its neighbour is not touched, also by an agent that was started anew, and leaves nothing.
func TestSizesHold(t *testing.T) {
	for _, kind := range smallfs.QuotaKinds {
		t.Run(kind, func(t *testing.T) {
			at := smallfs.WithQuotas(t, kind)
			a, b := newPlace(t, at, "a"), newPlace(t, at, "b")
			for range 2 { // as by an agent that was started anew
				if !a.make(t, 16*mega) || !b.make(t, 32*mega) {
					t.Fatal("they are not held")
				}
			}
			if info, err := os.Stat(a.dir); err != nil || info.Mode().Perm() != 0o777 {
				t.Errorf("its mode is %v, %v", info.Mode(), err)
			}
			if n := a.fill(t); n < 8*mega || n > 16*mega {
				t.Errorf("16 MB had room for %d", n)
			}
			if n := b.fill(t); n < 24*mega || n > 32*mega {
				t.Errorf("32 MB beside it had room for %d", n)
			}
			if used, is := Used(a.pod, a.name, a.dir); !is || used.Bytes < 8*mega || used.Bytes > 16*mega {
				t.Errorf("its use is said to be %+v, %v", used, is)
			}
			before, err := read(a.pod, a.name)
			must(t, err)
			must(t, os.Chmod(a.dir, 0o700)) // by the pod
			a.make(t, 16*mega)
			if info, err := os.Stat(a.dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("the mode that the pod has set is %v, %v", info.Mode(), err)
			}
			a.gone(t)
			if _, is := Used(a.pod, a.name, a.dir); is {
				t.Error("a volume that is gone has a use")
			}
			if before.kind == quota.Project {
				smallfs.Freed(t, "the project of a volume that is gone", func() bool { return quota.ProjectFree(at, before.project) })
			}
			must(t, Release(a.pod, a.name, a.dir))
			if n := b.fill(t); n > 32*mega {
				t.Errorf("32 MB had room for %d when the neighbour was gone", n)
			}
			b.gone(t)
		})
	}
}

// TestProjectsOfSeveral: who has chosen a project that somebody else is in by then takes another one, and what a kill leaves before the directory is there is completed.
func TestProjectsOfSeveral(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			at := smallfs.WithQuotas(t, kind)
			a, b := newPlace(t, at, "a"), newPlace(t, at, "b")
			a.make(t, mega)
			of, err := read(a.pod, a.name)
			must(t, err)
			must(t, os.Mkdir(dirOf(b.pod), 0o750))
			must(t, write(b.pod, b.name, of)) // as when both have looked at the same moment
			b.make(t, 32*mega)
			other, err := read(b.pod, b.name)
			must(t, err)
			is, err := quota.ProjectOf(b.dir)
			if err != nil || is != other.project || other.project == of.project {
				t.Errorf("the second has the project %d, on record %d, the first %d; %v", is, other.project, of.project, err)
			}
			if n := a.fill(t); n > mega {
				t.Errorf("1 MB had room for %d", n)
			}
			if n := b.fill(t); n < 24*mega {
				t.Errorf("32 MB had room for %d", n)
			}
			// Quotas do not reach into what somebody counts as a whole.
			must(t, quota.SetProject(at, 77))
			c := newPlace(t, at, "c")
			if c.make(t, mega) {
				t.Error("a volume leaves the project that it is made in")
			}
		})
	}
}

// TestNotHeld: where there are no quotas, and of volumes that were made without, nothing is made.
func TestNotHeld(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mount("none", dir, "tmpfs", 0, ""))
	defer func() { must(t, unix.Unmount(dir, 0)) }()
	p := newPlace(t, dir, "a")
	if p.make(t, mega) {
		t.Error("a file system in memory holds it")
	}
	if _, err := os.Lstat(p.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a directory: %v", err)
	}
	must(t, Release(p.pod, p.name, p.dir))
	if _, is := Used(p.pod, p.name, p.dir); is {
		t.Error("it has a use by a quota")
	}
	q := newPlace(t, smallfs.WithQuotas(t, "btrfs"), "a")
	must(t, os.Mkdir(q.dir, 0o700))
	if q.make(t, mega) {
		t.Error("a directory that was there is held")
	}
}

// TestRecords: what is no record of ours is an error that names it, and nothing is done by it.
func TestRecords(t *testing.T) {
	p := newPlace(t, t.TempDir(), "a")
	must(t, os.Mkdir(dirOf(p.pod), 0o750))
	for _, text := range []string{"project/0", "project/x", "project/1000", "project/4294967296"} {
		must(t, os.Symlink(text, recordOf(p.pod, p.name)))
		if _, err := Make(p.pod, p.name, p.dir, 0o777, mega); err == nil {
			t.Errorf("%s was taken", text)
		}
		if err := Release(p.pod, p.name, p.dir); err == nil {
			t.Errorf("%s was released", text)
		}
		must(t, os.Remove(recordOf(p.pod, p.name)))
	}
	for _, h := range []held{{kind: quota.Group}, {kind: quota.Project, project: firstProject}, {kind: quota.Project, project: firstProject + projects - 1}} {
		must(t, write(p.pod, p.name, h))
		if is, err := read(p.pod, p.name); err != nil || is != h {
			t.Errorf("%+v is read as %+v, %v", h, is, err)
		}
	}
}
