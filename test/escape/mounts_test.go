package escape

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/image/ociarchive"
)

// exchanging runs a container that exchanges two entries of a volume, a and b, without a pause, for as long as the test goes on. It has the volume
// at /shared.
func (p *pod) exchanging(volume, a, b string) *container {
	p.Helper()
	c := p.launch(mounted(command("/attack", "exchange", "/shared/"+a, "/shared/"+b), volume, "/shared"))
	c.says("ready")
	return c
}

// exchange lets two names change places, for ever.
func exchange(args []string) error {
	fmt.Println("ready")
	for {
		if err := unix.Renameat2(unix.AT_FDCWD, args[0], unix.AT_FDCWD, args[1], unix.RENAME_EXCHANGE); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
}

// place is a new directory of the host. It is there for as long as the node, because containers may be at work in it until then.
func (n *node) place() string {
	n.Helper()
	dir, err := os.MkdirTemp(n.host.Dir, "place")
	n.check(err)
	return dir
}

// folder makes a directory below another one.
func (n *node) folder(parts ...string) string {
	n.Helper()
	dir := filepath.Join(parts...)
	n.check(os.MkdirAll(dir, 0o755))
	return dir
}

// link makes a link, in place of one that is there.
func (n *node) link(target, path string) {
	n.Helper()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		n.Fatal(err)
	}
	n.check(os.Symlink(target, path))
}

// TestCVE2021_30465: a mount's destination is exchanged for a link while it is resolved. Two containers share a volume; in it, a folder and a link
// to a folder of the host change places without a pause. A container is started with a mount of the attacker's (whose entry "next" is a link to the
// host's secret) below that folder, and then one whose source is the folder that the first mount would cover if it landed on the host.
//
// The attacker would have won if a container saw the host's secret.
func TestCVE2021_30465(t *testing.T) {
	onEachEngine(t, nil, func(n *node) {
		secret := n.canary()
		top := n.place()
		volumes := n.folder(top, "volumes")
		shared, next, evil := n.folder(volumes, "shared"), n.folder(volumes, "next"), n.folder(top, "evil")
		n.check(os.WriteFile(filepath.Join(next, "canary"), []byte("innocent"), 0o644))
		n.link(secret.dir, filepath.Join(evil, "next"))
		n.folder(shared, "swap", "volumes")
		n.link(top, filepath.Join(shared, "out"))
		p := n.pod(nil)
		p.exchanging(shared, "swap", "out")
		started := 0
		for range rounds(100) {
			cfg := shell("cat /next/canary; echo; cat /proc/self/mountinfo | grep -c ' /next '")
			mounted(mounted(mounted(cfg, shared, "/shared"), evil, "/shared/swap/volumes"), next, "/next")
			c := p.try(cfg)
			if c.err == nil {
				started++
				c.wait()
				if out := c.printed(); strings.Contains(out, secret.text) || !strings.Contains(out, "innocent") {
					n.Fatalf("a container saw another folder than that of its mount: %s", out)
				}
			}
			c.stop()
		}
		n.Logf("%d of %d containers started", started, rounds(100))
	})
}

// TestCVE2024_45310: what a mount needs as its destination is made by a path that the attacker exchanges, so that it is made on the host. As
// above, and the destinations are a directory and a file that are not there yet.
//
// The attacker would have won if the host's folder, to which the link points, had an entry.
func TestCVE2024_45310(t *testing.T) {
	const plain = "localhost/escape/swap:1"
	outside := t.TempDir()
	// By a link in the image too, which needs no race.
	hostile := hostileImage(t, plain, ociarchive.Layer{{Path: "swap", Symlink: outside}, {Path: "up", Symlink: "../../../../../../.." + outside}}, nil)
	onEachEngine(t, []ociarchive.Image{hostile}, func(n *node) {
		shared, dir, file := n.place(), n.place(), filepath.Join(n.place(), "file")
		n.check(os.WriteFile(file, []byte("x"), 0o644))
		n.folder(shared, "swap")
		n.link(outside, filepath.Join(shared, "out"))
		p := n.pod(nil)
		p.exchanging(shared, "swap", "out")
		wantEmpty := func(when string) {
			n.Helper()
			if left := namesIn(n.T, outside); len(left) != 1 {
				n.Fatalf("%s: the host's folder has %q", when, left)
			}
		}
		for i := range rounds(100) {
			cfg := mounted(shell("true"), shared, "/shared")
			mounted(mounted(cfg, dir, fmt.Sprintf("/shared/swap/d%d/e/f", i)), file, fmt.Sprintf("/shared/swap/f%d", i))
			p.try(cfg).stop()
			wantEmpty("a race")
		}
		for _, at := range []string{"/swap/a/b", "/up/a/b"} {
			p.try(mounted(of(plain, shell("true")), dir, at)).stop()
			p.try(mounted(of(plain, shell("true")), file, at+"/file")).stop()
			wantEmpty("a link of the image")
		}
	})
}

// TestCVE2022_23648: an image declares a volume (VOLUME) at a link to the host, or at one below which there are such links: what the host has there would
// be copied into the container's volume.
//
// The attacker would have won if a container saw the host's secret.
func TestCVE2022_23648(t *testing.T) {
	onEachEngine(t, nil, func(n *node) {
		secret := n.canary()
		const volumes = "localhost/escape/volumes:1"
		at := []string{"/abs", "/up", "/in/dir", "/in", "/file", "/../../../../../../../.." + secret.dir}
		n.load(hostileImage(n.T, volumes, ociarchive.Layer{{Path: "abs", Symlink: secret.dir}, {Path: "up", Symlink: "../../../../../../../.." + secret.dir},
			{Path: "in/dir", Symlink: secret.dir}, {Path: "in/deep/link", Symlink: secret.dir}, {Path: "file", Symlink: filepath.Join(secret.dir, "canary")}},
			func(c *ocispec.ImageConfig) {
				c.Volumes = map[string]struct{}{}
				for _, name := range at {
					c.Volumes[name] = struct{}{}
				}
			}))
		c := n.pod(nil).launch(of(volumes, shell(sleeper)))
		for _, name := range append(at, secret.dir, "/in/deep/link") {
			if found := c.exec("sh", "-c", "ls -A "+name+"/ 2>/dev/null; cat "+name+"/canary "+name+" 2>/dev/null; true"); strings.Contains(found, "canary") || strings.Contains(found, secret.text) {
				n.Errorf("%s shows %q", name, found)
			}
		}
		if names := namesIn(n.T, secret.dir); len(names) != 2 { // itself, and the canary
			n.Errorf("the host's folder has %q", names)
		}
	})
}
