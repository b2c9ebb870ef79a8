package escape

import (
	"os"
	"path/filepath"
	"testing"

	"monopod.dev/monopod/internal/image/ociarchive"
)

// TestCVE2019_19921: an image's /proc is a link into a volume, in which another container of the attacker's lets a folder, where procfs might be mounted, and
// one full of files of his own change places while the container starts. What the runtime looks at before it mounts procfs is then not what it mounts it on, nor
// what it writes the program's label to; and another volume is mounted below it.
//
// The attacker would have won if a container ran less confined than any other one, with something unmasked, or if his files had been written.
func TestCVE2019_19921(t *testing.T) {
	notShort(t)
	const direct, deeper = "localhost/escape/procrace:1", "localhost/escape/procdeep:1"
	hostile := []ociarchive.Image{
		hostileImage(t, direct, ociarchive.Layer{{Path: "proc", Symlink: "/shared/level/proc"}, {Path: "shared", Dir: true}}, nil),
		hostileImage(t, deeper, ociarchive.Layer{{Path: "proc", Symlink: "a/proc"}, {Path: "a", Symlink: "/shared/level"}, {Path: "shared", Dir: true}}, nil),
	}
	onEachEngine(t, hostile, func(n *node) {
		n.unchanged(corePattern)
		p := n.pod(nil)
		ordinary := p.launch(asKubelets(sleeper)).exec("sh", "-c", confined)
		shared, below := n.place(), n.place()
		n.folder(shared, "level", "proc")
		n.makeFakeProc(filepath.Join(shared, "other", "proc"))
		n.makeFakeProc(below)
		p.exchanging(shared, "level", "other")
		for range rounds(30) {
			for _, name := range []string{direct, deeper, base} {
				for _, at := range []string{"", "/shared/level/proc/self/attr", "/proc/self/attr"} {
					cfg := mounted(of(name, asKubelets(sleeper)), shared, "/shared")
					if at != "" {
						mounted(cfg, filepath.Join(below, "self", "attr"), at)
					}
					c := p.try(cfg)
					if c.err == nil {
						c.wantProc(ordinary)
					}
					c.stop()
				}
			}
		}
		n.removeAll()
		fake := filepath.Join(shared, "other", "proc") // one of the two has the files now
		if _, err := os.Lstat(filepath.Join(fake, fakeProc[0])); err != nil {
			fake = filepath.Join(shared, "level", "proc")
		}
		n.wantUntouched(fake)
		n.wantUntouched(below)
	})
}
