package cdi

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// awaitHealth waits until a device of v.com/w is unhealthy for a reason with this part; empty: until it is healthy.
func awaitHealth(t *testing.T, s *Source, ticks <-chan struct{}, name, part string) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		d, ok := s.Snapshot().Find("v.com/w", name)
		if ok && (part == "") == (d.Unhealthy == "") && strings.Contains(d.Unhealthy, part) {
			return
		}
		select {
		case <-ticks:
		case <-timeout:
			t.Fatalf("device %s (%v) is unhealthy because %q, want %q", name, ok, d.Unhealthy, part)
		}
	}
}

func mknod(t *testing.T, path string, major, minor uint32) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor))))
}

func TestADeviceIsAsHealthyAsItsNodes(t *testing.T) {
	root := t.TempDir()
	dir, dev := filepath.Join(root, "cdi"), filepath.Join(root, "run/dev")
	write(t, filepath.Join(dir, "x.json"), `{"cdiVersion": "0.5.0", "kind": "v.com/w", "containerEdits": {"deviceNodes": [{"path": "/dev/ctl", "hostPath": "`+dev+`/ctl"}]}, "devices": [
		{"name": "w0", "containerEdits": {"deviceNodes": [{"path": "/dev/w", "hostPath": "`+dev+`/w0"}]}},
		{"name": "w1", "containerEdits": {"deviceNodes": [{"path": "/dev/w", "hostPath": "`+dev+`/sub/w1", "type": "c", "major": 1, "minor": 5}]}},
		{"name": "link", "containerEdits": {"deviceNodes": [{"path": "/dev/w", "hostPath": "`+dev+`/by-path/w2"}]}}]}`)
	write(t, filepath.Join(dir, "seat.json"), strings.ReplaceAll(spec("v.com/w", "seat"), "0.6.0", "0.3.0"))
	s, ticks := start(t, dir)
	await(t, s, ticks, "v.com/w=link", "v.com/w=seat", "v.com/w=w0", "v.com/w=w1")
	awaitHealth(t, s, ticks, "seat", "")
	awaitHealth(t, s, ticks, "w0", dev+"/w0 does not exist; "+dev+"/ctl does not exist")

	mknod(t, dev+"/w0", 1, 3) // its folders come into being
	awaitHealth(t, s, ticks, "w0", dev+"/ctl does not exist")
	mknod(t, dev+"/ctl", 1, 3) // a node of the whole file
	awaitHealth(t, s, ticks, "w0", "")
	must(t, os.Remove(dev+"/w0"))
	awaitHealth(t, s, ticks, "w0", dev+"/w0 does not exist")
	write(t, dev+"/w0", "")
	awaitHealth(t, s, ticks, "w0", dev+"/w0 is a regular file, not a device node")
	if d, _ := s.Snapshot().Find("v.com/w", "w0"); d.Absent {
		t.Error("the device is absent though something is at its path")
	}
	must(t, os.Remove(dev+"/w0"))
	awaitHealth(t, s, ticks, "w0", dev+"/w0 does not exist")
	if d, _ := s.Snapshot().Find("v.com/w", "w0"); !d.Absent {
		t.Error("the device is not absent though nothing is at its path")
	}
	mknod(t, dev+"/w0", 1, 3)
	awaitHealth(t, s, ticks, "w0", "")
	if d, _ := s.Snapshot().Find("v.com/w", "w0"); d.Absent {
		t.Error("the device is still absent though it has come again")
	}

	mknod(t, dev+"/sub/w1", 1, 3) // what is there is another device
	awaitHealth(t, s, ticks, "w1", dev+"/sub/w1 has device number 1:3, the spec says 1:5")
	mknod(t, dev+"/sub/next", 1, 5)
	must(t, os.Rename(dev+"/sub/next", dev+"/sub/w1"))
	awaitHealth(t, s, ticks, "w1", "")

	// The folder that a path leads through is a link, and turns.
	mknod(t, dev+"/one/w2", 1, 3)
	must(t, os.Symlink("one", dev+"/by-path"))
	awaitHealth(t, s, ticks, "link", "")
	must(t, os.Remove(dev+"/one/w2"))
	awaitHealth(t, s, ticks, "link", "does not exist")
	mknod(t, dev+"/two/w2", 1, 3)
	must(t, os.Symlink("two", dev+"/next"))
	must(t, os.Rename(dev+"/next", dev+"/by-path"))
	awaitHealth(t, s, ticks, "link", "")
	if d, _ := s.Snapshot().Find("v.com/w", "link"); len(d.Nodes) != 1 || !strings.HasSuffix(d.Nodes[0], "/two/w2") {
		t.Errorf("the device's nodes are %q", d.Nodes)
	}

	// All goes at once: the driver is gone, with its folder.
	must(t, os.Rename(dev, dev+".gone"))
	for _, name := range []string{"w0", "w1", "link"} {
		awaitHealth(t, s, ticks, name, "/ctl does not exist")
	}
	must(t, os.Rename(dev+".gone", dev))
	for _, name := range []string{"w0", "w1", "link"} {
		awaitHealth(t, s, ticks, name, "")
	}
}

// A device with very many nodes does not fill its pod's status.
func TestUnhealthyIsBounded(t *testing.T) {
	if got, want := unhealthy([]string{"a", "b", "c", "d", "e"}), "a; b; c; and 2 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := unhealthy([]string{"a", "b", "c"}); got != "a; b; c" {
		t.Errorf("got %q", got)
	}
}

// Writes to devices and other traffic in their folder cost nothing, and the number of watches is that of the folders.
func TestWatchesAreFewAndQuiet(t *testing.T) {
	root := t.TempDir()
	dir, dev := filepath.Join(root, "cdi"), filepath.Join(root, "dev")
	write(t, filepath.Join(dir, "x.json"), strings.ReplaceAll(benchmarkSpec(2000), "/dev/", dev+"/"))
	write(t, dev+"/dri/other", "")
	w, err := newWatcher()
	must(t, err)
	defer w.close()
	s := New(Config{Dirs: []string{dir}, Log: slog.New(slog.DiscardHandler)})
	s.refresh(w, ofFolders|ofNodes)
	if got, most := len(w.watched), strings.Count(root, "/")+6; got > most {
		t.Errorf("%d directories are watched, want %d at most: %v", got, most, w.watched)
	}
	if p := s.Snapshot().Problems; len(p) > 0 {
		t.Error(p)
	}
	for range 100 {
		write(t, dev+"/dri/other", "x")
		write(t, dev+"/another", "x")
	}
	write(t, dev+"/bench-gpu7", "") // comes after them
	for about, seen := scope(0), 0; about == 0; {
		path := <-w.notify.changed
		if !strings.HasPrefix(path, root) {
			continue // others make things beside this test's folder, which is watched to see whether it goes
		}
		if about = w.concerns(path); about != 0 && path != dev+"/bench-gpu7" {
			t.Errorf("%s is said to concern the devices", path)
		}
		if seen > 1 { // the making of /another, and of the node
			t.Errorf("event %d: %s", seen, path)
		}
		seen++
	}
}

func TestTooManyFoldersOfNodesAreAProblem(t *testing.T) {
	root := t.TempDir()
	w, err := newWatcher()
	must(t, err)
	defer w.close()
	var paths []string
	for i := range maxNodeDirs + 10 {
		paths = append(paths, fmt.Sprintf("%s/d%d/node", root, i))
		write(t, paths[i], "")
	}
	_, err = w.aim(nil, paths)
	if err == nil || !strings.Contains(err.Error(), "device nodes are not watched") || len(w.watched) > maxNodeDirs+strings.Count(root, "/")+2 {
		t.Errorf("%d directories are watched, error: %v", len(w.watched), err)
	}
}

// A folder that is replaced may get the inode of the one before; then only the kernel's word tells that its watch is gone.
func TestAWatchThatTheKernelDroppedIsMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cdi")
	must(t, os.Mkdir(dir, 0o755))
	s, ticks := start(t, dir)
	for i := range 20 {
		must(t, os.RemoveAll(dir))
		must(t, os.Mkdir(dir, 0o755))
		name := fmt.Sprintf("w%d", i)
		write(t, filepath.Join(dir, "x.json"), spec("v.com/w", name))
		await(t, s, ticks, "v.com/w="+name)
	}
}

func BenchmarkLook2000Devices(b *testing.B) {
	dir := b.TempDir()
	write(b, filepath.Join(dir, "x.json"), benchmarkSpec(2000))
	s := New(Config{Dirs: []string{dir}, Log: slog.New(slog.DiscardHandler)})
	c := s.catalog.Load()
	for b.Loop() {
		c.look(s.host, newIdentifier(s.shared), s.near)
	}
}
