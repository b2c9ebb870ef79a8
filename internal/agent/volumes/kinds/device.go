package kinds

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/mount"
)

const (
	// defaultFSType is the file system that a blank device gets where the volume names none, as with a kubelet.
	defaultFSType = "ext4"
	// blkid tells what is on a device.
	blkid = "blkid"
	// blankEnds is how much of each end of a device must be zeros before a file system is made there.
	blankEnds = 1 << 20
)

// nameOfFSType is what a file system may be called: a part of a program's name, and no path.
var nameOfFSType = regexp.MustCompile(`^[a-z0-9]{1,32}$`)

// ofDevice mounts the file system of a block device, for the pod alone: the kernel has one file system for all mounts of a device. A blank device gets one first.
// A kubelet makes one on each device on which blkid finds nothing; here what holds anything but zeros stays as it is, since it may be data that nobody has a signature for.
func (l *local) ofDevice(ctx context.Context) (*mount.Detached, error) {
	device, err := filepath.EvalSymlinks(l.path())
	if err != nil {
		return nil, err
	}
	var want string // the empty one is none, as in the API
	if named := l.volume.Spec.Local.FSType; named != nil {
		want = *named
	}
	if want != "" && !nameOfFSType.MatchString(want) {
		return nil, fmt.Errorf("fsType %q is no name of a file system", want)
	}
	is, err := fileSystemOn(ctx, device)
	if err != nil {
		return nil, err
	}
	switch {
	case is == "" && l.mayOnly:
		return nil, fmt.Errorf("%s is blank, and the volume may only be read", device)
	case is == "":
		is = cmp.Or(want, defaultFSType)
		if err := format(ctx, device, is); err != nil {
			return nil, err
		}
	case want != "" && is != want:
		return nil, fmt.Errorf("%s has a file system of the kind %s, and the volume's fsType is %s", device, is, want)
	}
	_, options := mount.Flags(l.volume.Spec.MountOptions)
	made, err := mount.Filesystem(is, device, options)
	if l.mayOnly && (errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES)) { // the device itself is read-only
		return mount.Filesystem(is, device, append(options, "ro"))
	}
	return made, err
}

// fileSystemOn is the kind of the file system on a device; none if the device is blank. Whatever else may be there is an error.
func fileSystemOn(ctx context.Context, device string) (string, error) {
	if _, err := exec.LookPath(blkid); err != nil {
		return "", fmt.Errorf("%s is not installed, which tells what is on a device: install util-linux", blkid)
	}
	out, err := run(ctx, blkid, "-p", "-s", "USAGE", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 { // it finds nothing
		return "", blank(device)
	}
	if err != nil {
		return "", fmt.Errorf("find out what is on %s: %w", device, err)
	}
	return fileSystemOf(device, out)
}

// fileSystemOf reads what blkid has found on a device.
func fileSystemOf(device, out string) (string, error) {
	found := map[string]string{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		found[name] = value
	}
	switch {
	case found["USAGE"] == "filesystem" && nameOfFSType.MatchString(found["TYPE"]):
		return found["TYPE"], nil
	case found["TYPE"] != "":
		return "", fmt.Errorf("on %s is %s (%s), which is no file system: it is left as it is", device, found["TYPE"], found["USAGE"])
	case found["PTTYPE"] != "":
		return "", fmt.Errorf("%s has a partition table (%s): name one of its partitions; it is left as it is", device, found["PTTYPE"])
	}
	return "", fmt.Errorf("what is on %s is not known, and is left as it is: %s says %q", device, blkid, out)
}

// blank says why a device is not blank: there is something other than zeros at one of its ends.
func blank(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size == 0 {
		return fmt.Errorf("%s has no size: no disk is in it, or it shows no file", device)
	}
	buf := make([]byte, min(size, blankEnds))
	for _, at := range []int64{0, size - int64(len(buf))} {
		if _, err := f.ReadAt(buf, at); err != nil {
			return err
		}
		if bytes.ContainsFunc(buf, func(r rune) bool { return r != 0 }) {
			return fmt.Errorf("%s has no file system that is known, and is not blank: it is left as it is. If its data may go, make a file system on it", device)
		}
	}
	return nil
}

// format makes a file system on a device.
func format(ctx context.Context, device, fsType string) error {
	program := "mkfs." + fsType
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("%s is blank, and %s is not installed, which makes its file system", device, program)
	}
	var options []string
	if strings.HasPrefix(fsType, "ext") {
		options = []string{"-q", "-F", "-m", "0"} // not asking anybody; it still refuses a device that is in use
	}
	_, err := run(ctx, program, append(options, device)...)
	return err
}

// run is what a program of the host writes. It ends with ctx and with this process: a mkfs that goes on alone would write to what is a pod's by then.
func run(ctx context.Context, program string, args ...string) (string, error) {
	runtime.LockOSThread() // the child is killed when the thread ends that has started it
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
