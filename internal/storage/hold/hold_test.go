package hold

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/quota"
	"monopod.dev/monopod/internal/storage/plan"
	"monopod.dev/monopod/test/smallfs"
)

const mega = 1 << 20

// on is a directory on a file system with quotas, of its own.
func on(kind string) func(*testing.T) string {
	return func(t *testing.T) string { return filepath.Join(smallfs.WithQuotas(t, kind), "volumes") }
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill writes as a pod does until it cannot, or most is reached, and returns how much there was room for.
func fill(t *testing.T, path string, most int64) (n int64) {
	t.Helper()
	smallfs.Unprivileged(t, func() {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		must(t, err)
		defer f.Close()
		block := bytes.Repeat([]byte("data of a pod..."), mega/16)
		for n < most {
			w, err := f.Write(block)
			n += int64(w)
			if err == nil {
				err = f.Sync()
			}
			if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
				break
			}
			must(t, err)
		}
	})
	return n
}

// mayGrow says whether this process may enlarge a mounted ext4 (CAP_SYS_RESOURCE).
func mayGrow(t *testing.T) bool {
	t.Helper()
	var has [2]unix.CapUserData
	must(t, unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &has[0]))
	return has[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// TestSizesHold: each holder gives what it says and not much more, grows while it is used, and leaves nothing behind. None but the block device and the plain
// directory are alike to who uses them.
func TestSizesHold(t *testing.T) {
	for _, c := range []struct {
		name string
		kind plan.Hold
		want plan.Isolation
		dir  func(*testing.T) string
	}{
		{"image", plan.File, plan.Image, func(t *testing.T) string { needRoot(t); return t.TempDir() }},
		{"qgroup", plan.Qgroup, plan.Auto, on("btrfs")},
		{"project of ext4", plan.Project, plan.Auto, on("ext4")},
		{"project of xfs", plan.Project, plan.Quota, on("xfs")},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := New(c.dir(t))
			kind, err := all.Choose(c.want, false)
			if err != nil || kind != c.kind {
				t.Fatalf("chosen is %q, %v", kind, err)
			}
			h, err := all.Of(kind)
			must(t, err)
			dir := filepath.Join(all.dir, "pvc-1")
			must(t, os.MkdirAll(dir, 0o700))
			v := Volume{Dir: dir, Data: filepath.Join(dir, plan.DataDir), Size: 32 * mega}
			if c.kind == plan.Project {
				if v.QuotaID = 0x6d700007; !all.Free(v.QuotaID) {
					t.Error("a project that nobody has is not free")
				}
			}
			ctx := context.Background()
			t.Cleanup(func() { must(t, mount.UnmountBelow(dir)) })
			for range 2 { // as after a crash
				must(t, h.Make(ctx, v))
			}
			if c.kind == plan.Project && all.Free(v.QuotaID) {
				t.Error("the volume's project is free for others")
			}
			if entries, err := os.ReadDir(v.Data); err != nil || len(entries) > 0 {
				t.Errorf("a new volume has %v, %v", entries, err)
			}
			if info, err := os.Stat(v.Data); err != nil || info.Mode().Perm() != dataMode {
				t.Errorf("its mode is %v, %v", info.Mode(), err)
			}
			file := filepath.Join(v.Data, "f")
			if n := fill(t, file, 100*mega); n < 16*mega || n > 32*mega {
				t.Errorf("32 MB had room for %d", n)
			}
			u, err := h.Usage(ctx, v)
			if err != nil || u.Used < 16*mega || u.Size > 32*mega || u.Size < 24*mega {
				t.Errorf("its use is said to be %+v, %v", u, err)
			}
			v.Size = 64 * mega
			for range 2 {
				if err = h.Resize(ctx, v); errors.Is(err, unix.EPERM) && c.kind == plan.File && !mayGrow(t) {
					t.Log("not tried: ext4 does not grow for who lacks CAP_SYS_RESOURCE")
				} else {
					must(t, err)
				}
			}
			if n := fill(t, file, 100*mega); err == nil && (n < 40*mega || n > 64*mega) {
				t.Errorf("64 MB had room for %d", n)
			}
			before, err := os.ReadFile(file)
			must(t, err)
			must(t, h.Detach(ctx, v))
			must(t, h.Attach(ctx, v)) // as after a start of the machine
			if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
				t.Errorf("what was in the volume is not any more: %v", err)
			}
			must(t, h.Detach(ctx, v))
			must(t, h.Discard(ctx, v))
			must(t, os.RemoveAll(dir))
			if c.kind == plan.Project {
				smallfs.Freed(t, "the project of a volume that is gone", func() bool { return all.Free(v.QuotaID) })
			}
			if err := h.Attach(ctx, v); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a volume that is not there: %v", err)
			}
		})
	}
}

func TestABlockDevice(t *testing.T) {
	needRoot(t)
	all := New(t.TempDir())
	kind, err := all.Choose(plan.Auto, true)
	if err != nil || kind != plan.File {
		t.Fatalf("chosen is %q, %v", kind, err)
	}
	dir := filepath.Join(all.dir, "pvc-1")
	must(t, os.Mkdir(dir, 0o700))
	v := Volume{Dir: dir, Data: filepath.Join(dir, plan.DataDir), Size: 4 * mega, Block: true}
	ctx, h := context.Background(), image{}
	t.Cleanup(func() { must(t, h.Detach(ctx, v)) })
	for range 2 {
		must(t, h.Make(ctx, v))
	}
	length := func() int64 {
		f, err := os.Open(v.Data)
		must(t, err)
		defer f.Close()
		n, err := f.Seek(0, io.SeekEnd)
		must(t, err)
		return n
	}
	if n := length(); n != 4*mega {
		t.Errorf("the device has %d bytes", n)
	}
	v.Size = 8 * mega
	must(t, h.Resize(ctx, v))
	if n := length(); n != 8*mega {
		t.Errorf("the device has %d bytes after its growth", n)
	}
	must(t, h.Detach(ctx, v))
	must(t, h.Attach(ctx, v))
	if n := length(); n != 8*mega {
		t.Errorf("the device has %d bytes after a start", n)
	}
}

// A plain directory holds nothing, and says so.
func TestPlain(t *testing.T) {
	all := New(filepath.Join(t.TempDir(), "volumes"))
	kind, err := all.Choose(plan.Unlimited, false)
	if err != nil || kind != plan.Nothing {
		t.Fatalf("chosen is %q, %v", kind, err)
	}
	if quota.Of(t.TempDir()) != quota.None {
		t.Skip("this directory has quotas")
	}
	if kind, err = all.Choose(plan.Auto, false); err != nil || kind != plan.Nothing {
		t.Errorf("chosen is %q, %v", kind, err)
	}
	if kind, err = all.Choose(plan.Quota, false); err == nil {
		t.Errorf("a quota that is not there is %q", kind)
	}
}
