package hold

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ioctl"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/storage/plan"
)

// anImage is a volume in a directory of the test's, which is off the machine at its end.
func anImage(t *testing.T, block bool) Volume {
	t.Helper()
	needRoot(t)
	dir := filepath.Join(t.TempDir(), "pvc-1")
	must(t, os.Mkdir(dir, 0o700))
	v := Volume{Dir: dir, Data: filepath.Join(dir, plan.DataDir), Size: 32 * mega, Block: block}
	t.Cleanup(func() {
		must(t, mount.UnmountBelow(dir))
		must(t, image{}.Detach(t.Context(), v))
	})
	return v
}

// shown is how many loop devices show a volume's image.
func shown(t *testing.T, v Volume) int {
	t.Helper()
	all, err := loopsOf(image{}.path(v))
	must(t, err)
	for _, l := range all {
		l.close()
	}
	return len(all)
}

// TestOneDeviceOfAnImage: whatever keeps a file system in use that is not at its place any more, it is the same one that is mounted next, not another with the same blocks.
func TestOneDeviceOfAnImage(t *testing.T) {
	v, h := anImage(t, false), image{}
	must(t, h.Make(t.Context(), v))
	pods := filepath.Join(v.Dir, "pods")
	must(t, os.Mkdir(pods, 0o700))
	must(t, unix.Mount(v.Data, pods, "", unix.MS_BIND, ""))
	must(t, mount.Unmount(v.Data))
	must(t, h.Attach(t.Context(), v))
	if n := shown(t, v); n != 1 {
		t.Errorf("%d loop devices show the image", n)
	}
	var at, pod unix.Stat_t
	must(t, errors.Join(unix.Stat(v.Data, &at), unix.Stat(pods, &pod)))
	if at.Dev != pod.Dev {
		t.Errorf("the pod's file system is %#x, and the one at its place %#x", pod.Dev, at.Dev)
	}
	must(t, mount.Unmount(pods))
	must(t, h.Detach(t.Context(), v))
	if n := shown(t, v); n != 0 {
		t.Errorf("%d loop devices show the image after it is detached", n)
	}
}

// TestOneDeviceOfABlockVolume: a kill before the node is there, and a directory that goes by another name, cost no device, and none is left at the end.
func TestOneDeviceOfABlockVolume(t *testing.T) {
	v, h := anImage(t, true), image{}
	must(t, h.Make(t.Context(), v))
	must(t, os.Remove(v.Data))
	must(t, h.Attach(t.Context(), v))
	link := filepath.Join(filepath.Dir(v.Dir), "link")
	must(t, os.Symlink(v.Dir, link))
	must(t, h.Attach(t.Context(), Volume{Dir: link, Data: filepath.Join(link, plan.DataDir), Size: v.Size, Block: true}))
	if n := shown(t, v); n != 1 {
		t.Errorf("%d loop devices show the image", n)
	}
	must(t, os.Remove(v.Data))
	must(t, h.Detach(t.Context(), v))
	if n := shown(t, v); n != 0 {
		t.Errorf("%d loop devices show the image after it is detached", n)
	}
}

// TestForget: a node whose number is another image's device by now is no volume any more, and is one again when the volume is attached. One that is right stays.
func TestForget(t *testing.T) {
	a, b, h := anImage(t, true), anImage(t, true), image{}
	must(t, errors.Join(h.Make(t.Context(), a), h.Make(t.Context(), b)))
	rdev := func(v Volume) uint64 {
		var st unix.Stat_t
		must(t, unix.Stat(v.Data, &st))
		return st.Rdev
	}
	right := rdev(a)
	must(t, Forget(filepath.Dir(a.Dir)))
	if rdev(a) != right {
		t.Error("the node of a volume that is attached is gone")
	}
	must(t, os.Remove(a.Data))
	must(t, unix.Mknod(a.Data, unix.S_IFBLK|0o600, int(rdev(b))))
	must(t, Forget(filepath.Dir(a.Dir)))
	if info, err := os.Lstat(a.Data); err != nil || !info.Mode().IsRegular() || info.Size() > 0 {
		t.Errorf("in the place of another's device is %v, %v", info, err)
	}
	must(t, h.Attach(t.Context(), a))
	if rdev(a) != right {
		t.Error("the volume has another device after it is attached")
	}
	must(t, Forget(filepath.Join(t.TempDir(), "none")))
}

// TestRoom: what is missing is compared with what is free but for a spare part.
func TestRoom(t *testing.T) {
	const giga = 1 << 30
	for _, c := range []struct {
		more, free, total int64
		fits              bool
	}{
		{9 * giga, 10 * giga, 20 * giga, true},
		{9*giga + 1, 10 * giga, 20 * giga, false},
		{9 * giga, 10 * giga, 1000 * giga, true},
		{94 * mega, 100 * mega, 100 * mega, true},
		{96 * mega, 100 * mega, 100 * mega, false},
		{0, 0, giga, true},
	} {
		if err := room(c.more, c.free, c.total, 0); (err == nil) != c.fits {
			t.Errorf("%d of %d free of %d: %v", c.more, c.free, c.total, err)
		}
	}
}

// TestAFullDiskKeepsItsRoom: neither a new image nor a growth takes what is not there, and after a growth that failed the image is as it was, and grows by less.
func TestAFullDiskKeepsItsRoom(t *testing.T) {
	needRoot(t)
	disk := t.TempDir()
	must(t, unix.Mount("none", disk, "tmpfs", 0, "size=64m"))
	t.Cleanup(func() { must(t, mount.UnmountBelow(disk)) })
	h, v := image{}, Volume{Dir: filepath.Join(disk, "pvc-1"), Data: filepath.Join(disk, "pvc-1", plan.DataDir), Size: 63 * mega, Block: true}
	must(t, os.Mkdir(v.Dir, 0o700))
	free := func() int64 {
		n, _, err := New(disk).Room()
		must(t, err)
		return n
	}
	before := free()
	if err := h.Make(t.Context(), v); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("an image that leaves no room: %v", err)
	}
	if free() < before {
		t.Errorf("of %d bytes %d are free", before, free())
	}
	v.Size = 16 * mega
	must(t, h.Make(t.Context(), v))
	t.Cleanup(func() { must(t, h.Detach(t.Context(), v)) })
	before = free()
	v.Size = 63 * mega
	if err := h.Resize(t.Context(), v); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a growth that leaves no room: %v", err)
	}
	if info, err := os.Stat(h.path(v)); err != nil || info.Size() != 16*mega || free() != before {
		t.Errorf("after it the image is %v, %v, and %d bytes are free of %d", info, err, free(), before)
	}
	v.Size = 32 * mega
	must(t, h.Resize(t.Context(), v))
}

// TestWhatIsReservedStays: neither mkfs, nor the file system, nor who zeroes or discards blocks of a device makes holes in an image.
func TestWhatIsReservedStays(t *testing.T) {
	has := func(v Volume) int64 {
		var st unix.Stat_t
		must(t, unix.Stat(image{}.path(v), &st))
		return st.Blocks * 512
	}
	files := anImage(t, false)
	must(t, image{}.Make(t.Context(), files))
	if n := has(files); n < files.Size {
		t.Errorf("%d bytes are reserved of %d, after mkfs", n, files.Size)
	}
	device := anImage(t, true)
	must(t, image{}.Make(t.Context(), device))
	fill(t, device.Data, 16*mega)
	d, err := os.OpenFile(device.Data, os.O_RDWR, 0)
	must(t, err)
	defer d.Close()
	rest := [2]uint64{0, 8 * mega}
	if err := ioctl.Call(d.Fd(), unix.BLKDISCARD, &rest); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("a discard: %v", err)
	}
	must(t, ioctl.Call(d.Fd(), unix.BLKZEROOUT, &rest))
	must(t, d.Sync())
	if n := has(device); n < device.Size {
		t.Errorf("%d bytes are reserved of %d, after zeros and discards", n, device.Size)
	}
}

// TestAnImageIsANewFile: who still writes to what a killed attempt has left does not write to the volume.
func TestAnImageIsANewFile(t *testing.T) {
	v := anImage(t, true)
	orphan, err := os.Create(image{}.path(v) + ".new")
	must(t, err)
	defer orphan.Close()
	must(t, image{}.Make(t.Context(), v))
	if _, err := orphan.WriteAt([]byte("mkfs"), 0); err != nil {
		t.Fatal(err)
	}
	if is, err := os.ReadFile(image{}.path(v)); err != nil || bytes.HasPrefix(is, []byte("mkfs")) {
		t.Errorf("the image has what the one before it was to have, %v", err)
	}
}

// TestBlank: a block device is blank until something other than zeros is written to it.
func TestBlank(t *testing.T) {
	v := anImage(t, true)
	blank := func(want bool) {
		t.Helper()
		if is, err := Blank(v); err != nil || is != want {
			t.Errorf("blank is %v, %v", is, err)
		}
	}
	blank(true) // there is nothing of it
	must(t, image{}.Make(t.Context(), v))
	blank(true)
	must(t, os.WriteFile(v.Data, []byte(strings.Repeat("\x00", mega)), 0))
	blank(true)
	d, err := os.OpenFile(v.Data, os.O_RDWR, 0)
	must(t, err)
	defer d.Close()
	_, err = d.WriteAt([]byte{1}, 20*mega)
	must(t, err)
	blank(false)
}

// TestTheLeastImage has a file system with blocks of 4096 bytes, and room.
func TestTheLeastImage(t *testing.T) {
	v := anImage(t, false)
	v.Size = leastImage
	must(t, image{}.Make(t.Context(), v))
	var st unix.Statfs_t
	must(t, unix.Statfs(v.Data, &st))
	if st.Bsize != 4096 || fill(t, filepath.Join(v.Data, "f"), v.Size) < leastImage/4 {
		t.Errorf("its file system is %+v", st)
	}
}

// TestImagesOfBtrfsAreWrittenInPlace, where the room is that is reserved.
func TestImagesOfBtrfsAreWrittenInPlace(t *testing.T) {
	dir := filepath.Join(on("btrfs")(t), "pvc-1")
	must(t, os.MkdirAll(dir, 0o700))
	v := Volume{Dir: dir, Data: filepath.Join(dir, plan.DataDir), Size: 8 * mega, Block: true}
	must(t, image{}.Make(t.Context(), v))
	defer func() { must(t, image{}.Detach(t.Context(), v)) }()
	f, err := os.Open(image{}.path(v))
	must(t, err)
	defer f.Close()
	if flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS); err != nil || flags&fsNoCow == 0 {
		t.Errorf("its flags are %#x, %v", flags, err)
	}
}
