package ns

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/proc"
)

// PreparePID makes the file in a pin directory, which Create has made, onto which somebody else mounts a PID namespace, and
// returns its path. It is idempotent.
func PreparePID(dir string) (path string, err error) {
	path = Path(dir, PID)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY|unix.O_NOFOLLOW, 0o400)
	if err != nil {
		return "", err
	}
	return path, f.Close()
}

// PinPID mounts the PID namespace of a process onto a new file. alive is asked when the mount is there: only then is it certain
// that the number was that process's, and nobody else's who got it later.
func PinPID(path string, pid int, alive func() error) (err error) {
	fd, err := proc.OpenFD(pid)
	if err != nil {
		return err
	}
	defer fd.Close()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o400)
	if err != nil {
		return err
	}
	f.Close()
	if err := unix.Mount(fmt.Sprintf("/proc/%d/ns/pid", pid), path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("pin the PID namespace of process %d at %s: %w", pid, path, err)
	}
	if err := alive(); err != nil {
		return err
	}
	if fd.Ended() {
		return fmt.Errorf("process %d: %w", pid, unix.ESRCH)
	}
	return nil
}
