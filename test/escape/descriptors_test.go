package escape

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
)

// canary is a file of the host that no container may come to.
type canary struct{ dir, file, text string }

func (n *node) canary() canary {
	n.Helper()
	c := canary{dir: n.place(), text: "canary of " + n.Name()}
	c.file = filepath.Join(c.dir, "canary")
	n.check(os.WriteFile(c.file, []byte(c.text), 0o644))
	return c
}

// mostDescriptors is up to which number descriptors are tried.
const mostDescriptors = 40

// TestCVE2024_21626: a descriptor that the runtime has left open leads out. The image's working directory is /proc/self/fd/N, as it is
// written and by a link, for each N that a runtime may have; the same is tried for commands.
//
// The attacker would have won if a program ran with a working directory outside its root (then getcwd fails, and ".." leads to the
// host's files), or found a descriptor in itself that it was not given.
func TestCVE2024_21626(t *testing.T) {
	var hostile []ociarchive.Image
	var names []string
	add := func(name string, layer ociarchive.Layer, dir string) {
		name = "localhost/escape/" + name + ":1"
		names = append(names, name)
		hostile = append(hostile, hostileImage(t, name, layer, func(c *ocispec.ImageConfig) { c.WorkingDir = dir }))
	}
	for fd := 3; fd < mostDescriptors; fd++ {
		add(fmt.Sprintf("cwd%d", fd), nil, fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	for _, fd := range []int{3, 4, 5, 6, 7, 8, 9, 10, 12, 14} {
		add(fmt.Sprintf("link%d", fd), ociarchive.Layer{{Path: "work", Symlink: fmt.Sprintf("/proc/self/fd/%d", fd)}}, "/work")
	}
	onEachEngine(t, hostile, func(n *node) {
		secret := n.canary()
		p := n.pod(nil)
		// What leads up from the working directory, and what is at hand.
		look := "i=; for n in 1 2 3 4 5 6 7 8 9 10 11 12; do cat ./${i}" + strings.TrimPrefix(secret.file, "/") + " 2>/dev/null && echo ESCAPED; i=../$i; done; echo at $(pwd -P)"
		for _, name := range names {
			if out := p.output(of(name, shell(look))); strings.Contains(out, "ESCAPED") || strings.Contains(out, secret.text) {
				n.Errorf("%s: the working directory leads to the host: %s", name, out)
			}
		}
		nothingHeld(n, "a container", p.output(command("ls", "-l", "/proc/self/fd")))
		c := p.launch(shell(sleeper))
		nothingHeld(n, "a container's shell", c.exec("ls", "-l", "/proc/1/fd"))
		nothingHeld(n, "a command", c.exec("ls", "-l", "/proc/self/fd"))
		for fd := 3; fd < mostDescriptors; fd++ {
			resp, err := c.tryExec(10, "sh", "-c", fmt.Sprintf("cd /proc/self/fd/%d && %s", fd, look))
			if err == nil && strings.Contains(string(resp.GetStdout()), "ESCAPED") {
				n.Errorf("descriptor %d of a command leads to the host: %s", fd, resp.GetStdout())
			}
		}
	})
}

// nothingHeld fails when the output of ls -l for a folder of descriptors has more than the standard streams, and the folder itself.
func nothingHeld(n *node, what, list string) {
	n.Helper()
	standard := 0
	for line := range strings.Lines(list) {
		left, target, link := strings.Cut(strings.TrimSpace(line), " -> ")
		if !link {
			continue
		}
		number := left[strings.LastIndexByte(left, ' ')+1:]
		switch {
		case number == "0" || number == "1" || number == "2":
			standard++
		case strings.HasPrefix(target, "/proc/") && strings.HasSuffix(target, "/fd"):
		default:
			n.Errorf("%s has the descriptor %s of %s", what, number, target)
		}
	}
	if standard != 3 {
		n.Errorf("%s: the descriptors were not told: %s", what, list)
	}
}
