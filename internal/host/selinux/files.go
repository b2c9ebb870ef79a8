package selinux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// attribute is the extended attribute that holds a file's label.
const attribute = "security.selinux"

// maxDepth bounds the directories within each other that Relabel goes down; it holds one open descriptor for each.
const maxDepth = 512

// batch is how many names of a directory are read at a time.
const batch = 512

// systemPaths are directories whose label is the host's: programs of the host would lose their access.
var systemPaths = func() map[string]bool {
	paths := map[string]bool{}
	for path := range strings.FieldsSeq("/ /bin /boot /dev /etc /home /lib /lib32 /lib64 /media /mnt /opt /proc /root /run /sbin /srv /sys /tmp /usr" +
		" /usr/bin /usr/lib /usr/lib64 /usr/libexec /usr/local /usr/local/bin /usr/sbin /usr/share /var /var/cache /var/lib /var/log /var/run /var/spool /var/tmp" +
		" /etc/passwd /etc/group /etc/shadow /etc/pki /etc/ssl /etc/selinux") {
		paths[path] = true
	}
	return paths
}()

// SetFile labels one file, not what a symbolic link points to. A file system without labels of its own is no error.
func SetFile(path, label string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if err := set(fd, label); err != nil {
		return fmt.Errorf("label %s as %s: %w", path, label, err)
	}
	return nil
}

// Relabel labels a file, or a directory with all that is below it, that itself last. Whoever may write there meanwhile cannot lead it
// elsewhere: no name is looked up but in a directory that is open, and no link is followed. What is mounted below is labelled,
// too; file systems without labels of their own are left as they are. The path is free of symbolic links. Directories of the system
// are InvalidArgument.
func Relabel(ctx context.Context, path, label string) error {
	if systemPaths[path] {
		return fmt.Errorf("%s belongs to the system, and is not relabelled: %w", path, errdefs.ErrInvalidArgument)
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if err := relabel(ctx, fd, label, 0); err != nil {
		return fmt.Errorf("label %s as %s: %w", path, label, err)
	}
	return nil
}

// Ensure is Relabel of what has not been relabelled yet, which the label of the path itself tells: what is made below it inherits that.
func Ensure(ctx context.Context, path, label string) error {
	have := make([]byte, 4096)
	if n, err := unix.Lgetxattr(path, attribute, have); err == nil && strings.TrimRight(string(have[:n]), "\x00") == label {
		return nil
	}
	return Relabel(ctx, path, label)
}

func relabel(ctx context.Context, fd int, label string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if depth == maxDepth {
			return fmt.Errorf("it has more than %d directories within each other: %w", maxDepth, errdefs.ErrInvalidArgument)
		}
		if err := relabelIn(ctx, fd, label, depth+1); err != nil {
			return err
		}
	}
	return set(fd, label)
}

// relabelIn labels what is in a directory.
func relabelIn(ctx context.Context, fd int, label string, depth int) error {
	listing, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	dir := os.NewFile(uintptr(listing), ".")
	defer dir.Close()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		names, rerr := dir.Readdirnames(batch)
		for _, name := range names {
			child, err := unix.Openat(fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if errors.Is(err, unix.ENOENT) {
				continue // removed meanwhile
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			err = relabel(ctx, child, label, depth)
			unix.Close(child)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if errors.Is(rerr, io.EOF) {
			return nil
		}
		if rerr != nil {
			return rerr
		}
	}
}

// set labels what is open, unless it has the label.
func set(fd int, label string) error {
	// Extended attributes cannot be set by a descriptor that is only a path; its name in /proc is no link that leads elsewhere.
	path := "/proc/self/fd/" + strconv.Itoa(fd)
	have := make([]byte, 4096)
	if n, err := unix.Getxattr(path, attribute, have); err == nil && strings.TrimRight(string(have[:n]), "\x00") == label {
		return nil
	}
	err := unix.Setxattr(path, attribute, []byte(label), 0)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return os.NewSyscallError("setxattr", err)
}
