// Package selinux asks the kernel about SELinux, and labels files. What a label is made of is not decided here.
//
// Every function is safe for concurrent use. Nothing changes the labels of this process.
package selinux

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	library "github.com/opencontainers/selinux/go-selinux"
)

// Enabled says that the kernel has SELinux and a policy for it.
func Enabled() bool { return library.GetEnabled() }

// Enforcing says that what the policy does not allow is denied, and not only logged.
func Enforcing() bool { return library.EnforceMode() == library.Enforcing }

// Known is an InvalidArgument unless the policy that is loaded knows the label.
func Known(label string) error {
	if err := library.SecurityCheckContext(label); err != nil {
		return fmt.Errorf("the SELinux policy of this host does not know the label %q: %w: %w", label, err, errdefs.ErrInvalidArgument)
	}
	return nil
}

// Own is the label of this process.
func Own() (string, error) { return library.CurrentLabel() }

// Contexts are the labels that the host's policy names for containers, of processes, of files and of files that are only read, or those
// that most policies have. Their levels mean nothing.
func Contexts() (process, file, readOnly string) {
	process, file = library.ContainerLabels() //nolint:staticcheck // there is no other way to what the policy says
	library.ReleaseLabel(process)
	if readOnly = library.ROFileLabel(); readOnly == "" || readOnly == file {
		readOnly = "system_u:object_r:container_ro_file_t:s0"
	}
	if process == "" || file == "" {
		process, file = "system_u:system_r:container_t:s0", "system_u:object_r:container_file_t:s0"
	}
	return process, file, readOnly
}

// mountPoint is where the kernel tells of its policy.
const mountPoint = "/sys/fs/selinux"

// MayBecome says whether the policy lets this process start another one with the label.
func MayBecome(label string) (bool, error) {
	own, err := Own()
	if err != nil {
		return false, err
	}
	if own == label {
		return true, nil
	}
	class, err := number(filepath.Join(mountPoint, "class/process/index"))
	if err != nil {
		return false, err
	}
	permission, err := number(filepath.Join(mountPoint, "class/process/perms/transition"))
	if err != nil {
		return false, err
	}
	f, err := os.OpenFile(filepath.Join(mountPoint, "access"), os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%s %s %d", own, label, class); err != nil {
		return false, fmt.Errorf("ask SELinux whether %s may become %s: %w", own, label, err)
	}
	answer := make([]byte, 256)
	n, err := f.Read(answer)
	if err != nil {
		return false, err
	}
	allowed, permissive, err := decision(string(answer[:n]))
	return permissive || allowed&(1<<(permission-1)) != 0, err
}

// decision reads the kernel's answer: what is allowed, what of that was decided, what is audited when allowed and when denied, a
// sequence number, and flags, of which the first says that the domain is permissive.
func decision(answer string) (allowed uint64, permissive bool, err error) {
	words := strings.Fields(strings.TrimRight(answer, "\x00"))
	if len(words) < 6 {
		return 0, false, fmt.Errorf("SELinux's answer %q is too short", answer)
	}
	if allowed, err = strconv.ParseUint(words[0], 16, 32); err != nil {
		return 0, false, fmt.Errorf("SELinux's answer %q: %w", answer, err)
	}
	flags, err := strconv.ParseUint(words[5], 16, 32)
	if err != nil {
		return 0, false, fmt.Errorf("SELinux's answer %q: %w", answer, err)
	}
	return allowed, flags&1 != 0, nil
}

func number(path string) (n uint, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	if _, err = fmt.Sscan(string(raw), &n); err == nil && n == 0 {
		err = fmt.Errorf("0")
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}
