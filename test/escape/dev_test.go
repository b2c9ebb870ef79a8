package escape

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/harness"
)

// TestCVE2026_41579: an image whose /dev is a link. What the runtime makes and removes in /dev before the program starts (ptmx, fd, stdin,
// core) would be made and removed where the link points to on the host.
//
// The attacker would have won if the host's directory had other entries afterwards: its ptmx gone, or links that were not there.
func TestCVE2026_41579(t *testing.T) {
	dir, entries := hostDirectory(t, "ptmx", "null", "console")
	const absolute, relative, through = "localhost/escape/devlink:1", "localhost/escape/devup:1", "localhost/escape/devthrough:1"
	hostile := []ociarchive.Image{
		hostileImage(t, absolute, ociarchive.Layer{{Path: "dev", Symlink: dir}}, nil),
		hostileImage(t, relative, ociarchive.Layer{{Path: "dev", Symlink: "../../../../../../../../.." + dir}}, nil),
		hostileImage(t, through, ociarchive.Layer{{Path: "dev", Symlink: "proc/1/root" + dir}}, nil),
	}
	onEachEngine(t, hostile, func(n *node) {
		p := n.pod(nil)
		for _, image := range []string{absolute, relative, through} {
			for _, tty := range []bool{false, true} {
				cfg := of(image, shell(sleeper))
				cfg.Tty = tty
				c := p.try(cfg)
				if c.err != nil {
					n.Logf("%s is refused: %v", image, c.err)
				} else {
					_, _ = c.tryExec(10, "true")
				}
				c.stop()
			}
			if now := namesIn(n.T, dir); !slices.Equal(now, entries) {
				n.Fatalf("%s: the host's directory had %q, and has %q", image, entries, now)
			}
		}
	})
}

// hostDirectory is a directory of the host with files.
func hostDirectory(t *testing.T, files ...string) (dir string, entries []string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("host"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, namesIn(t, dir)
}

// namesIn lists all that is below a directory.
func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil {
			names = append(names, path+" "+e.Type().String())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// hostileNull are ways to put something else in the place of a device that whoever starts commands may want to open: by a script that is told
// the path. opened says that its being opened would be seen.
var hostileNull = []struct {
	name, script string
	opened       bool
}{
	{"kernel log", "mknod $p c 1 11", true},
	{"watchdog", "mknod $p c 10 130", true},
	{"block device", "mknod $p b 7 0", true},
	{"FUSE", "mknod $p c 10 229", true},
	{"serial line", "mknod $p c 4 64", true},
	{"number of no driver", "mknod $p c 507 3", true},
	{"FIFO", "mkfifo $p", true},
	{"endless link", "ln -s ${p##*/} $p", false},
	{"link to a process", "ln -s /proc/1/mem $p", false},
	{"link to the first process's stdin", "ln -s /proc/1/fd/0 $p", false},
	{"link to a FIFO", "mkfifo /fifo; ln -s /fifo $p", false},
	{"folder", "mkdir $p", false},
	{"nothing", "true", false},
}

// TestHostileNull: a container puts something else in the place of its /dev/null: a device that its device cgroup does not let it use, what waits when it
// is opened, or nothing. CAP_MKNOD, which containers have by default, suffices; with a volume at /dev not even that is needed.
//
// The attacker would have won if somebody outside of the container's cgroups opened it for him (a watchdog that is opened resets the host, a tape rewinds, a
// number without a driver loads a module), or if commands failed from then on: that hides him from probes. A command's stdin is the host's /dev/null.
func TestHostileNull(t *testing.T) {
	mostlyNative(t, nil, func(n *node) { n.pod(nil).attackDevice("/dev/null", false) })
}

// TestHostileNullOfVolumes: the same where /dev is a volume, as an emptyDir would be, in which another container of the pod is at work: before the
// victim starts, and afterwards.
func TestHostileNullOfVolumes(t *testing.T) {
	mostlyNative(t, nil, func(n *node) {
		dev := n.place()
		p := n.pod(nil)
		evil := p.launch(mounted(shell(sleeper), dev, "/shared"))
		for _, way := range hostileNull {
			evil.exec("sh", "-c", "rm -rf /shared/null && mknod -m 666 /shared/null c 1 3")
			victim := p.launch(mounted(shell(idler), dev, "/dev"))
			evil.exec("sh", "-c", "p=/shared/null; rm -rf /fifo $p; "+way.script)
			var seen *opens
			if way.opened {
				seen = evil.watch("/shared/null", way.name != "FIFO")
			}
			begin := time.Now()
			victim.stillExecutes(way.name)
			late := p.try(mounted(shell(idler), dev, "/dev"))
			if late.err == nil { // that it is refused is right, too: there is nothing to mask files with
				late.stillExecutes(way.name)
			}
			n.within(begin, way.name)
			if seen != nil {
				seen.wantNone(way.name)
			}
			victim.stop()
			late.stop()
		}
	})
}

// attackDevice lets a container replace a device, and executes commands in it: with a terminal, too.
func (p *pod) attackDevice(path string, tty bool) {
	p.Helper()
	for _, way := range hostileNull {
		c := p.launch(shell(idler))
		c.exec("sh", "-c", "p="+path+"; rm -rf $p; "+way.script)
		var seen *opens
		if way.opened {
			seen = c.watch(path, way.name != "FIFO")
		}
		begin := time.Now()
		for i := 0; i < rounds(10) && c.stillExecutes(way.name); i++ {
			if tty {
				_, _ = c.terminal("echo fine") // without its device there may be none
			}
		}
		p.within(begin, way.name)
		if seen != nil {
			seen.wantNone(way.name)
		}
		c.stop()
	}
}

// stillExecutes fails when a command does not run as ever: with the host's /dev/null as its stdin, which ends at once.
func (c *container) stillExecutes(why string) bool {
	c.Helper()
	resp, err := c.tryExec(int64(60*harness.SlowFactor()), "sh", "-c", "cat; stat -L -c '%F %t:%T' /proc/self/fd/0")
	if err != nil || string(resp.GetStdout()) != "character special file 1:3\n" {
		c.Errorf("%s: a command ends with %v, %v", why, resp, err)
		return false
	}
	return true
}

// within fails when what was begun has taken long.
func (n *node) within(begin time.Time, what string) {
	n.Helper()
	if took := time.Since(begin); took > bound() {
		n.Errorf("%s: it took %v", what, took)
	}
}
