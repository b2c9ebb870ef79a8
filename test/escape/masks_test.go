package escape

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// corePattern is what every attacker of masked paths wants to write: the host runs its content as root.
const corePattern = "/proc/sys/kernel/core_pattern"

// unchanged remembers files of the host's /proc, and fails the test when they say something else afterwards.
func (n *node) unchanged(paths ...string) {
	n.Helper()
	for _, path := range paths {
		before, err := os.ReadFile(path)
		n.check(err)
		n.Cleanup(func() {
			now, err := os.ReadFile(path)
			if err != nil || string(now) != string(before) {
				n.Errorf("the host's %s was %q and is %q, %v", path, before, now, err)
			}
		})
	}
}

// mount is a line of a process's mountinfo (proc_pid_mountinfo(5)).
type mount struct{ root, point, fsType string }

// mountsOf are the mounts that a container's first process sees; none when it has ended.
func (c *container) mountsOf() (all []mount) {
	c.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", c.process()))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(raw)) {
		left, right, _ := strings.Cut(line, " - ")
		f, t := strings.Fields(left), strings.Fields(right)
		if len(f) > 4 && len(t) > 0 {
			all = append(all, mount{f[3], f[4], t[0]})
		}
	}
	return all
}

// wantMasked fails when one of the paths shows what the host has there, or when a part of procfs is mounted anywhere but where it belongs.
func (c *container) wantMasked(paths ...string) {
	c.Helper()
	all := c.mountsOf()
	if len(all) == 0 {
		c.Fatal("the container's mounts are not known: it has ended")
	}
	cover := map[string]mount{}
	for _, m := range all {
		cover[m.point] = m
		if m.fsType == "proc" && m.root != "/" && m.point != "/proc"+m.root {
			c.Errorf("%s of procfs is mounted at %s", m.root, m.point)
		}
	}
	for _, path := range paths {
		if _, err := os.Lstat(path); err != nil {
			continue // this kernel has no such file
		}
		if m, ok := cover[path]; !ok || m.fsType == "proc" || m.fsType == "sysfs" {
			c.Errorf("%s is not masked: %+v", path, m)
		}
	}
}

// TestCVE2025_31133: a file is masked by a bind mount of the container's /dev/null, which the container has replaced: by a link to the file
// of /proc that the attacker wants to write. /dev is a volume here, in which a device like /dev/null and the link change places.
//
// The attacker would have won if a masked path could be read, or showed the link's target, or the host's core_pattern had changed.
func TestCVE2025_31133(t *testing.T) {
	// Files that every kernel has, and a folder.
	masked := []string{"/proc/version", "/proc/cmdline", "/proc/meminfo", "/proc/irq"}
	onEachEngine(t, nil, func(n *node) {
		n.unchanged(corePattern)
		dev := n.place()
		n.check(unix.Mknod(filepath.Join(dev, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		n.link(corePattern, filepath.Join(dev, "other"))
		p := n.pod(nil)
		for _, race := range []bool{false, true} {
			if race {
				p.exchanging(dev, "null", "other")
			} else {
				n.check(os.Rename(filepath.Join(dev, "null"), filepath.Join(dev, "real")))
				n.link(corePattern, filepath.Join(dev, "null"))
			}
			for range rounds(40) {
				cfg := mounted(shell("for f in "+strings.Join(masked, " ")+"; do echo \"<$(cat $f 2>&-)>\"; (exec 2>&-; echo '|/bin/evil' > $f); done; echo done; "+sleeper), dev, "/dev")
				cfg.Linux.SecurityContext.MaskedPaths = masked
				c := p.try(cfg)
				if c.err == nil {
					c.says("done")
					c.wantMasked(masked...)
					if out := strings.ReplaceAll(c.printed(), "<>\n", ""); out != "done\n" {
						n.Errorf("a masked file said %q", out)
					}
				}
				c.stop()
			}
			n.check(os.Remove(filepath.Join(dev, "null")))
			if !race {
				n.check(os.Rename(filepath.Join(dev, "real"), filepath.Join(dev, "null")))
			}
		}
	})
}

// TestCVE2025_52565: /dev/console of a container with a terminal is a bind mount of /dev/pts/N, by that path, before anything is masked. /dev is
// a volume in which console, and pts with its terminals, change places with links to /proc.
//
// The attacker would have won if his /dev/console were a file of procfs, or one of the host's, or the host's core_pattern had changed.
func TestCVE2025_52565(t *testing.T) {
	onEachEngine(t, nil, func(n *node) {
		n.unchanged(corePattern)
		secret := n.canary()
		terminals := n.place() // a devpts, as some driver of volumes may mount it
		n.check(unix.Mount("devpts", terminals, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"))
		n.Cleanup(func() {
			if err := unix.Unmount(terminals, unix.MNT_DETACH); err != nil {
				n.Error(err)
			}
		})
		for _, names := range [][2]string{{"console", "link"}, {"pts", "links"}} {
			dev := n.place()
			n.folder(dev, "pts")
			n.folder(dev, "links")
			// What a runtime needs of /dev beside them.
			n.check(unix.Mknod(filepath.Join(dev, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
			n.link("pts/ptmx", filepath.Join(dev, "ptmx"))
			n.check(os.WriteFile(filepath.Join(dev, "console"), nil, 0o600))
			n.link(corePattern, filepath.Join(dev, "link"))
			for i := range 4 {
				n.link(secret.file, filepath.Join(dev, "pts", fmt.Sprint(i)))
				n.link(corePattern, filepath.Join(dev, "links", fmt.Sprint(i)))
			}
			p := n.pod(nil)
			p.exchanging(dev, names[0], names[1])
			started, last := 0, error(nil)
			for range rounds(100) {
				cfg := mounted(shell("(exec 2>&-; echo '|/bin/evil' > /dev/console); echo done; "+sleeper), dev, "/dev")
				mounted(cfg, terminals, "/dev/pts")
				cfg.Tty = true
				c := p.try(cfg)
				if c.err == nil {
					started++
					c.wantConsole(secret)
				} else {
					last = c.err
				}
				c.stop()
			}
			n.Logf("%s changes: %d of %d containers started; the last refusal: %v", names[0], started, rounds(100), last)
			n.check(os.WriteFile(secret.file, []byte(secret.text), 0o644))
		}
	})
}

// wantConsole fails when /dev/console of a container is neither a terminal of its own nor what the volume has there.
func (c *container) wantConsole(secret canary) {
	c.Helper()
	c.says("done")
	for _, m := range c.mountsOf() {
		if m.fsType == "proc" && m.root != "/" && m.point != "/proc"+m.root {
			c.Errorf("%s of procfs is mounted at %s", m.root, m.point)
		}
		if m.point == "/dev/console" && m.fsType != "devpts" {
			c.Errorf("/dev/console is %s of %s", m.root, m.fsType)
		}
	}
	if now, err := os.ReadFile(secret.file); err != nil || string(now) != secret.text {
		c.Errorf("the host's file was written through /dev/console: %q, %v", now, err)
	}
}
