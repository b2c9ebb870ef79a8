package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"monopod.dev/monopod/test/vm/guest"
)

// Name is the machine's host name.
const Name = "monopod-vm"

// etc are the files that programs expect of any Linux.
var etc = map[string]string{
	"hostname":      Name + "\n",
	"hosts":         "127.0.0.1 localhost " + Name + "\n::1 localhost\n",
	"resolv.conf":   "",
	"passwd":        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
	"group":         "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
	"nsswitch.conf": "hosts: files\n",
	"os-release":    "ID=monopod-vm\nPRETTY_NAME=\"Monopod's test machine\"\n",
}

// stageRoot lays out the root file system: busybox and its applets, /etc, the files, the job.
func stageRoot(dir, busybox string, applets []string, files map[string]string, job guest.Job) error {
	for _, d := range []string{"bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin", "etc", "root", "tmp", "var/lib", "var/log", "var/tmp", "run", "opt", "mnt", "payload/bin"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	for _, d := range []string{"tmp", "var/tmp"} {
		if err := os.Chmod(filepath.Join(dir, d), 0o777|fs.ModeSticky); err != nil {
			return err
		}
	}
	if err := os.Symlink("../run", filepath.Join(dir, "var/run")); err != nil {
		return err
	}
	for name, content := range etc {
		if err := os.WriteFile(filepath.Join(dir, "etc", name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	if err := installBusybox(dir, busybox, applets); err != nil {
		return err
	}
	for to, from := range files {
		if err := copyTree(from, filepath.Join(dir, to)); err != nil {
			return fmt.Errorf("put %s at %s: %w", from, to, err)
		}
	}
	raw, err := json.Marshal(job)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, guest.JobFile), raw, 0o644)
}

// busyboxApplets lists the commands of busybox. One of another architecture cannot be asked here, but has the same: it is of the same Debian.
func busyboxApplets(ctx context.Context, cache string) ([]string, error) {
	dir, err := Unpacked(ctx, cache, "busybox-static", "busybox-static")
	if err != nil {
		return nil, err
	}
	busybox, err := busyboxIn(dir)
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w", busybox, err)
	}
	return strings.Fields(string(out)), nil
}

func installBusybox(dir, busybox string, applets []string) error {
	if err := copyTree(busybox, filepath.Join(dir, "bin/busybox")); err != nil {
		return err
	}
	for _, applet := range applets {
		err := os.Symlink("busybox", filepath.Join(dir, "bin", applet))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// copyTree copies a file or a directory with what is in it: regular files with their modes, symbolic links as they are.
func copyTree(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	from, err := filepath.EvalSymlinks(from) // what is named is meant, not the link to it
	if err != nil {
		return err
	}
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		info, err := e.Info()
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			return os.MkdirAll(target, info.Mode().Perm()|0o700)
		case e.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case e.Type().IsRegular():
			return copyFile(path, target, info.Mode().Perm())
		}
		return fmt.Errorf("%s is a %s, which cannot be copied", path, e.Type())
	})
}

func copyFile(from, to string, mode fs.FileMode) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), os.Chmod(to, mode))
}

// makeDisk makes an ext4 file system of a directory, in a sparse file. A disk that lives for one boot needs no journal; without one another boot would not
// find what was synced before a power cut.
func makeDisk(ctx context.Context, path, dir string, mebibytes int, journal bool) error {
	feature := "^has_journal"
	if journal {
		feature = "has_journal"
	}
	_, err := runTool(ctx, "", "mke2fs", "-q", "-t", "ext4", "-O", feature, "-E", "root_owner=0:0,lazy_itable_init=1,lazy_journal_init=1",
		"-m", "0", "-L", "monopod-vm", "-d", dir, path, fmt.Sprintf("%dm", mebibytes))
	return err
}
