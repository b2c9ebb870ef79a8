package kinds

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/volumes/claims"
	"monopod.dev/monopod/internal/host/mount"
)

// onDevice has the volume of a world be a blank block device.
func onDevice(t *testing.T, w *world, size int64) {
	t.Helper()
	if _, err := os.Stat("/dev/loop-control"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("this machine has no loop devices")
	}
	file := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, size)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		err := mount.UnmountBelow(w.pods)
		if out, cerr := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil || cerr != nil {
			t.Errorf("%v, %v: %s", err, cerr, out)
		}
	})
	link := filepath.Join(t.TempDir(), "by-id") // as devices are named
	if err := os.Symlink(device, link); err != nil {
		t.Fatal(err)
	}
	w.volume.Spec.Local.Path = link
}

// TestBlankDevice: a blank device gets a file system once. What is on it then is there for the next pod, and for two at a time.
func TestBlankDevice(t *testing.T) {
	w := newWorld(t)
	onDevice(t, w, 32<<20)
	gid := int64(2345)
	w.volume.Spec.Local.FSType = new("") // as upstream's specs do
	w.volume.Spec.MountOptions = []string{"noatime", "errors=remount-ro"}
	first, second, third := w.pod("one"), w.pod("two"), w.pod("three")
	first.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	if got := w.setUp(first); got != (Source{Path: first.Dir}) {
		t.Errorf("containers get %+v", got)
	}
	if err := os.WriteFile(filepath.Join(first.Dir, "row"), []byte("acknowledged"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.setUp(second)
	sameRow(t, second.Dir)
	w.down(first)
	w.down(second)
	if err := errors.Join(claims.Forget(filepath.Join(w.pods, "one")), claims.Forget(filepath.Join(w.pods, "two"))); err != nil {
		t.Fatal(err)
	}
	w.setUp(third)
	sameRow(t, third.Dir)
	if info, err := os.Stat(third.Dir); err != nil || info.Mode()&os.ModeSetgid == 0 {
		t.Errorf("the directory is not the group's any more: %v, %v", info, err)
	}
	w.down(third)
}

func sameRow(t *testing.T, dir string) {
	t.Helper()
	if raw, err := os.ReadFile(filepath.Join(dir, "row")); err != nil || string(raw) != "acknowledged" {
		t.Errorf("the row is %q, %v", raw, err)
	}
}

// TestDeviceThatIsNotBlank: a device that holds anything is mounted, if that is the file system that is wanted, and is left as it is otherwise.
func TestDeviceThatIsNotBlank(t *testing.T) {
	xfs, path, ext2 := "xfs", "../sh", "ext2"
	for name, c := range map[string]struct {
		on   string // what writes to the device $0
		make func(w *world, v *Volume)
		want string // the error, or none
	}{
		"data of an unknown kind":       {on: `printf x | dd of="$0" bs=1 seek=5000 conv=notrunc status=none`, want: "has no file system that is known, and is not blank"},
		"data at its end":               {on: `printf x | dd of="$0" bs=1 seek=33554431 conv=notrunc status=none`, want: "has no file system that is known, and is not blank"},
		"swap":                          {on: `mkswap "$0" >/dev/null`, want: "is swap (other), which is no file system"},
		"partitions":                    {on: `printf '\0\0\0\0\203\0\0\0\1\0\0\0\377\0\0\0' | dd of="$0" bs=1 seek=446 conv=notrunc status=none; printf '\125\252' | dd of="$0" bs=1 seek=510 conv=notrunc status=none`, want: "has a partition table (dos)"},
		"another file system":           {on: `mkfs.ext4 -q "$0"`, make: func(w *world, _ *Volume) { w.volume.Spec.Local.FSType = &xfs }, want: "has a file system of the kind ext4, and the volume's fsType is xfs"},
		"its file system":               {on: `mkfs.ext2 -q "$0"`, make: func(w *world, _ *Volume) { w.volume.Spec.Local.FSType = &ext2 }},
		"a path for a file system":      {on: `:`, make: func(w *world, _ *Volume) { w.volume.Spec.Local.FSType = &path }, want: `fsType "../sh" is no name of a file system`},
		"a blank one that is only read": {on: `:`, make: func(_ *world, v *Volume) { v.Spec.PersistentVolumeClaim.ReadOnly = true }, want: "is blank, and the volume may only be read"},
		"an option that it has not":     {on: `mkfs.ext4 -q "$0"`, make: func(w *world, _ *Volume) { w.volume.Spec.MountOptions = []string{"nouuid"} }, want: "nouuid"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			onDevice(t, w, 32<<20)
			device := w.volume.Spec.Local.Path
			if out, err := exec.Command("sh", "-c", c.on, device).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			before := sumOf(t, device)
			v := w.pod("u")
			if c.make != nil {
				c.make(w, v)
			}
			err := w.kind.Setup(t.Context(), v)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				w.down(v)
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if after := sumOf(t, device); after != before {
				t.Error("what is on the device was changed")
			}
		})
	}
}

func sumOf(t *testing.T, device string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `sha256sum < "$0"`, device).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
