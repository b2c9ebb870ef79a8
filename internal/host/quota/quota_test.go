package quota

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/test/smallfs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestNone: a file system in memory has none of them, and says so to each question.
func TestNone(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mount("none", dir, "tmpfs", 0, ""))
	defer func() { must(t, unix.Unmount(dir, 0)) }()
	if is := Of(dir); is != None {
		t.Errorf("it has %q", is)
	}
	if is := Of(filepath.Join(dir, "none")); is != None {
		t.Errorf("what is not there has %q", is)
	}
	for what, err := range map[string]error{
		"a project": SetProject(dir, 7), "a limit": LimitProject(dir, 7, 1), "none at all": LimitProject(dir, 0, 1),
		"a subvolume": MakeSubvolume(filepath.Join(dir, "v")), "its limit": LimitSubvolume(dir, 1),
	} {
		if err == nil {
			t.Errorf("%s is no error", what)
		}
	}
	if _, err := SubvolumeUsed(dir); err == nil {
		t.Error("a directory that is no subvolume has a use")
	}
	must(t, RemoveSubvolume(dir)) // it is none
}

// TestProjects: a directory is of a project, and so is what is made in it; the project is somebody's until the last file of it is gone, whatever its limit is.
func TestProjects(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			at := smallfs.WithQuotas(t, kind)
			if is := Of(at); is != Project {
				t.Fatalf("it has %q", is)
			}
			const id = 0x6d000009
			if !ProjectFree(at, id) {
				t.Error("a project that nobody has is not free")
			}
			dir := filepath.Join(at, "v")
			must(t, os.Mkdir(dir, 0o700))
			if is, err := ProjectOf(dir); err != nil || is != 0 {
				t.Errorf("a new directory is of %d, %v", is, err)
			}
			must(t, SetProject(dir, id))
			if is, err := ProjectOf(dir); err != nil || is != id || ProjectFree(at, id) {
				t.Errorf("the directory is of %d, %v; free %v", is, err, ProjectFree(at, id))
			}
			must(t, LimitProject(at, id, 1<<20))
			must(t, os.WriteFile(filepath.Join(dir, "f"), make([]byte, 64<<10), 0o600))
			used, err := ProjectUsed(at, id)
			if err != nil || used.Inodes != 2 || used.Bytes < 64<<10 || used.Bytes > 128<<10 {
				t.Errorf("it takes %+v, %v", used, err)
			}
			must(t, LimitProject(at, id, 0))
			must(t, os.RemoveAll(dir))
			smallfs.Freed(t, "a project without files", func() bool { return ProjectFree(at, id) })
		})
	}
}
