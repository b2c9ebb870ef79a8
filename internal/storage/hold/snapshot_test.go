package hold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/storage/plan"
)

// onDisk is where a new file system is mounted, without quotas.
func onDisk(t *testing.T, kind string) string {
	t.Helper()
	needRoot(t)
	if _, err := exec.LookPath("mkfs." + kind); err != nil {
		t.Skip("mkfs." + kind + " is not installed")
	}
	dir := t.TempDir()
	file, at := filepath.Join(dir, "disk"), filepath.Join(dir, "at")
	must(t, errors.Join(os.Mkdir(at, 0o700), os.WriteFile(file, nil, 0o600), os.Truncate(file, 512*mega)))
	for _, c := range [][]string{{"mkfs." + kind, "-q", file}, {"mount", "-o", "loop", file, at}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", c, err, out)
		}
	}
	t.Cleanup(func() { must(t, mount.UnmountBelow(at)) })
	return at
}

// volumeIn makes a volume in a directory, which is off the machine at the end.
func volumeIn(t *testing.T, h *Holders, name string, kind plan.Hold, block bool) Volume {
	t.Helper()
	dir := filepath.Join(h.dir, name)
	must(t, os.MkdirAll(dir, 0o700))
	v := Volume{Dir: dir, Data: filepath.Join(dir, plan.DataDir), Size: 32 * mega, Block: block}
	holder, err := h.Of(kind)
	must(t, err)
	t.Cleanup(func() {
		must(t, mount.UnmountBelow(dir))
		must(t, holder.Detach(context.Background(), v))
	})
	return v
}

func made(t *testing.T, h *Holders, name string, kind plan.Hold, block bool) Volume {
	t.Helper()
	v := volumeIn(t, h, name, kind, block)
	holder, err := h.Of(kind)
	must(t, err)
	must(t, holder.Make(t.Context(), v))
	return v
}

func snapshotIn(t *testing.T, h *Holders, name string, kind plan.Hold, block bool) Snapshot {
	t.Helper()
	s := Snapshot{Dir: filepath.Join(h.dir, ".snapshots", name), Hold: kind, Block: block}
	must(t, os.MkdirAll(s.Dir, 0o700))
	return s
}

// writes appends numbered lines to a file, each durable before the next, until stop; durable is how many of them are, and wrote ticks when there are more.
func writes(t *testing.T, path string) (durable *atomic.Int64, wrote <-chan struct{}, stop func()) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	durable = &atomic.Int64{}
	end, ended, ticks := make(chan struct{}), make(chan error, 1), make(chan struct{}, 1)
	go func() {
		for {
			select {
			case <-end:
				ended <- f.Close()
				return
			default:
			}
			_, err := fmt.Fprintf(f, "line %d\n", durable.Load())
			if err == nil {
				err = f.Sync()
			}
			if err != nil {
				f.Close()
				ended <- err
				return
			}
			durable.Add(1)
			select {
			case ticks <- struct{}{}:
			default:
			}
		}
	}()
	return durable, ticks, func() { close(end); must(t, <-ended) }
}

// within reads a file of a snapshot.
func within(t *testing.T, s Snapshot, name string) string {
	t.Helper()
	root, release, err := s.Open()
	must(t, err)
	defer release()
	fd, err := unix.Openat(int(root.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	raw, err := io.ReadAll(f)
	must(t, err)
	return string(raw)
}

// TestSnapshotsWhileSomethingWrites: what was durable before is in the snapshot, what came later is not, a file system in an image needs no repair, and the copy of a copy is the same on
// whatever it is made.
func TestSnapshotsWhileSomethingWrites(t *testing.T) {
	btrfs := on("btrfs")
	xfs := func(t *testing.T) string { return filepath.Join(onDisk(t, "xfs"), "volumes") }
	for _, c := range []struct {
		name string
		kind plan.Hold
		dir  func(*testing.T) string
	}{{"a subvolume", plan.Qgroup, btrfs}, {"an image on btrfs", plan.File, btrfs}, {"an image on xfs", plan.File, xfs}, {"a directory on xfs", plan.Nothing, xfs}, {"a directory on btrfs", plan.Nothing, btrfs}} {
		t.Run(c.name, func(t *testing.T) {
			h := New(c.dir(t))
			v := made(t, h, "pvc-1", c.kind, false)
			must(t, os.WriteFile(filepath.Join(v.Data, "old"), []byte("before"), 0o640))
			must(t, unix.Chmod(v.Data, 0o2770))
			durable, wrote, stop := writes(t, filepath.Join(v.Data, "log"))
			defer stop()
			var s Snapshot
			var before, after int64
			for i := range 3 {
				for n := durable.Load(); durable.Load() < n+5; {
					<-wrote
				}
				s = snapshotIn(t, h, fmt.Sprint("s", i), c.kind, false)
				before = durable.Load()
				must(t, h.Take(t.Context(), v, s))
				after = durable.Load()
			}
			must(t, os.WriteFile(filepath.Join(v.Data, "old"), []byte("after!"), 0o640))
			must(t, os.WriteFile(filepath.Join(v.Data, "new"), nil, 0o600))
			if c.kind == plan.File {
				if out, err := exec.Command("e2fsck", "-f", "-n", s.path()).CombinedOutput(); err != nil {
					t.Errorf("the file system of the snapshot wants repair: %v\n%s", err, out)
				}
			}
			if is := within(t, s, "old"); is != "before" {
				t.Errorf("the snapshot has %q", is)
			}
			lines := strings.Count(within(t, s, "log"), "\n")
			if int64(lines) < before || int64(lines) > after+1 {
				t.Errorf("%d lines were durable before, %d after, and the snapshot has %d", before, after, lines)
			}
			for i, kind := range []plan.Hold{c.kind, plan.Nothing, plan.File} {
				w := volumeIn(t, h, fmt.Sprint("copy-", i), kind, false)
				must(t, h.Fill(t.Context(), s, w, kind))
				must(t, Synced(w))
				raw, err := os.ReadFile(filepath.Join(w.Data, "old"))
				if err != nil || string(raw) != "before" {
					t.Errorf("a copy held by %s has %q, %v", kind, raw, err)
				}
				if raw, err = os.ReadFile(filepath.Join(w.Data, "log")); err != nil || strings.Count(string(raw), "\n") != lines {
					t.Errorf("a copy held by %s has %d bytes of the log, %v", kind, len(raw), err)
				}
				if info, err := os.Stat(w.Data); err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o770 {
					t.Errorf("its mode is %v, %v", info.Mode(), err)
				}
				must(t, os.WriteFile(filepath.Join(w.Data, "old"), []byte("of the copy"), 0o600))
			}
			if is := within(t, s, "old"); is != "before" {
				t.Errorf("after a copy was written to the snapshot has %q", is)
			}
			if used, own, err := s.Usage(t.Context()); err != nil || used <= 0 || own < 0 || own > used {
				t.Errorf("its use is said to be %d, %d of it its own, %v", used, own, err)
			}
			must(t, Drop(s.Dir))
			must(t, os.RemoveAll(s.Dir))
		})
	}
}

// TestSnapshotOfABlockDevice: what was flushed before is there.
func TestSnapshotOfABlockDevice(t *testing.T) {
	h := New(on("btrfs")(t))
	v := made(t, h, "pvc-1", plan.File, true)
	d, err := os.OpenFile(v.Data, os.O_RDWR, 0)
	must(t, err)
	defer d.Close()
	old, later := bytes.Repeat([]byte("old."), 1<<16), bytes.Repeat([]byte("new."), 1<<16)
	_, err = d.WriteAt(old, 20*mega)
	must(t, err)
	s := snapshotIn(t, h, "s", plan.File, true)
	must(t, h.Take(t.Context(), v, s))
	_, err = d.WriteAt(later, 20*mega)
	must(t, err)
	must(t, d.Sync())
	w := volumeIn(t, h, "copy", plan.File, true)
	w.Size = 48 * mega
	must(t, h.Fill(t.Context(), s, w, plan.File))
	c, err := os.Open(w.Data)
	must(t, err)
	defer c.Close()
	is := make([]byte, len(old))
	if _, err = c.ReadAt(is, 20*mega); err != nil || !bytes.Equal(is, old) {
		t.Errorf("the copy has %q..., %v", is[:8], err)
	}
	if owed, err := Owed(v); err != nil || owed <= 0 || owed > v.Size {
		t.Errorf("the image may come to need %d bytes, %v", owed, err)
	}
}

// TestNoReflinks: a file system that cannot share blocks says so, and writes go on.
func TestNoReflinks(t *testing.T) {
	disk := onDisk(t, "ext4")
	h := New(filepath.Join(disk, "volumes"))
	for _, kind := range []plan.Hold{plan.File, plan.Nothing} {
		v := made(t, h, "pvc-"+string(kind), kind, false)
		must(t, os.WriteFile(filepath.Join(v.Data, "f"), []byte("x"), 0o600))
		if err := h.Take(t.Context(), v, snapshotIn(t, h, string(kind), kind, false)); !errdefs.IsNotImplemented(err) {
			t.Errorf("%s: %v", kind, err)
		}
		must(t, os.WriteFile(filepath.Join(v.Data, "f"), []byte("y"), 0o600))
		root, err := h.OpenLive(t.Context(), v, kind)
		must(t, err)
		must(t, root.Close())
	}
	if err := h.Shares(); !errdefs.IsNotImplemented(err) {
		t.Errorf("it is said to share blocks: %v", err)
	}
	must(t, New(onDisk(t, "xfs")).Shares())
}

// TestAnImageKeepsItsRoom: a snapshot of an image is refused where the disk could not hold both, and a new image where snapshots may need the room.
func TestAnImageKeepsItsRoom(t *testing.T) {
	h := New(on("btrfs")(t))
	v := made(t, h, "pvc-1", plan.File, true)
	v.Size = 96 * mega
	holder, err := h.Of(plan.File)
	must(t, err)
	must(t, holder.Resize(t.Context(), v))
	if n := fill(t, v.Data, 80*mega); n < 80*mega {
		t.Fatalf("%d bytes were written", n)
	}
	free, _, err := h.Room()
	must(t, err)
	d, err := os.Open(h.dir)
	must(t, err)
	defer d.Close()
	filler, err := os.Create(filepath.Join(h.dir, "filler"))
	must(t, err)
	defer filler.Close()
	must(t, unix.Fallocate(int(filler.Fd()), 0, 0, free-64*mega))
	err = h.Take(t.Context(), v, snapshotIn(t, h, "s", plan.File, true))
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "takes new room") {
		t.Errorf("a snapshot for which there is no room: %v", err)
	}
	must(t, os.Remove(filler.Name()))
	must(t, filler.Close())
	must(t, errors.Join(os.RemoveAll(filepath.Join(h.dir, ".snapshots")), synced(d)))
	must(t, h.Spare(96*mega, 0))
	if err := h.Spare(96*mega, free); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("room that is owed: %v", err)
	}
}

// TestThaw: a file system that a kill has left frozen is written to again; one that is not frozen, and the disk's own, stay as they are. None is frozen for longer than it may.
func TestThaw(t *testing.T) {
	h := New(filepath.Join(onDisk(t, "xfs"), "volumes"))
	v := made(t, h, "pvc-1", plan.File, false)
	d, err := os.Open(v.Data)
	must(t, err)
	must(t, unix.IoctlSetInt(int(d.Fd()), fsIocFreeze, 0))
	must(t, d.Close())
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(filepath.Join(v.Data, "f"), []byte("x"), 0o600) }()
	must(t, Thaw(v))
	must(t, <-written)
	must(t, Thaw(v))
	must(t, Thaw(made(t, h, "pvc-2", plan.Nothing, false)))
	must(t, Thaw(Volume{Dir: filepath.Join(h.dir, "none"), Data: filepath.Join(h.dir, "none", "data")}))

	f, err := freeze(v.Data)
	must(t, err)
	f.timer.Reset(0)
	must(t, os.WriteFile(filepath.Join(v.Data, "f"), []byte("y"), 0o600)) // which waits until then
	if err := f.held(); !errors.Is(err, errLate) {
		t.Errorf("it is said to be frozen: %v", err)
	}
	if err := f.thaw(); !errors.Is(err, errLate) {
		t.Errorf("it is said to have been frozen all the time: %v", err)
	}
}
