package kinds

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/host/tree"
)

// What a volume holds is given to the pod's fsGroup as a kubelet does it: the group of all files, read and write for it, and directories that hand it down. The root
// comes last: a volume whose root is as it should be is so as a whole, unless somebody has changed it since (policy OnRootMismatch).
//
// Others may have made the files, and change them meanwhile: each is changed by a descriptor of what was looked at, no link is followed, and nothing that is mounted there is
// entered.

// groupMode is what the group has of a file; groupDir what it has of a directory beside.
const (
	groupMode = 0o660
	groupDir  = 0o110 | unix.S_ISGID
)

// When it is told first that it takes long, and how often after that.
const (
	firstTold = 30 * time.Second
	nextTold  = time.Minute
)

// given says that a volume's root is as giveToGroup leaves it.
func given(root *os.File, gid int) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return false, err
	}
	want := wanted(st.Mode)
	return st.Gid == uint32(gid) && st.Mode&want == want, nil
}

// wanted are the bits that a file of this mode has to have.
func wanted(mode uint32) uint32 {
	if mode&unix.S_IFMT == unix.S_IFDIR {
		return groupMode | groupDir
	}
	return groupMode
}

// giveToGroup gives all files of a volume to a group. progress is told of how many it has gone over, when it takes long. A file that cannot be given is left as it is, as
// a kubelet does, and told at the end.
func giveToGroup(ctx context.Context, root *os.File, gid int, progress func(files int)) error {
	g := &giving{ctx: ctx, gid: gid, progress: progress, due: time.Now().Add(firstTold)}
	err := tree.Walk(int(root.Fd()), g)
	if errors.Is(err, tree.ErrUnfinished) {
		err = fmt.Errorf("give its files to the group %d: %w; it is tried again", gid, err)
	}
	if err != nil {
		return err
	}
	if err := give(int(root.Fd()), gid); err != nil {
		return err
	}
	if g.failed > 0 {
		return &notGiven{g.failed, gid, g.first}
	}
	return nil
}

// notGiven says that some files of a volume could not be given to a group.
type notGiven struct {
	files, gid int
	first      error
}

// Error says how many, and why the first.
func (n *notGiven) Error() string {
	return fmt.Sprintf("%d files could not be given to the group %d, the first one because of this: %v", n.files, n.gid, n.first)
}

// giving is the walk over a volume.
type giving struct {
	ctx      context.Context
	gid      int
	progress func(files int)
	due      time.Time

	files, failed int
	first         error
}

// Pause implements tree.Visitor.
func (g *giving) Pause() error { return g.ctx.Err() }

// Visit implements tree.Visitor.
func (g *giving) Visit(string, int, *unix.Stat_t) bool { return true }

// Act implements tree.Actor.
func (g *giving) Act(dir int, name string, st *unix.Stat_t) error {
	g.files++
	if g.files%256 == 0 && time.Now().After(g.due) {
		g.due = time.Now().Add(nextTold)
		g.progress(g.files)
	}
	if want := wanted(st.Mode); st.Gid == uint32(g.gid) && (st.Mode&want == want || st.Mode&unix.S_IFMT == unix.S_IFLNK) {
		return nil
	}
	fd, err := openat2(dir, name)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EXDEV): // it is gone, or something is mounted there
		return nil
	case err == nil:
		err = give(fd, g.gid)
		unix.Close(fd)
	}
	if err != nil {
		if g.failed++; g.first == nil {
			g.first = &os.PathError{Op: "chown", Path: name, Err: err}
		}
	}
	return nil
}

// openat2 opens a name in a directory as a path: a link is opened itself, and what is mounted there is not.
func openat2(dir int, name string) (int, error) {
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
		})
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// give gives an open file to a group, with what the group shall have of it.
func give(fd, gid int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Gid != uint32(gid) {
		if err := unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	// A descriptor of a path changes no mode itself. Set-user-ID bits, which chown takes away, are those of before.
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), st.Mode&0o7777|wanted(st.Mode))
}

// mismatchOnly says that a pod wants its volumes' files given to its group only where the root is not.
func mismatchOnly(pod *v1.Pod) bool {
	sc := pod.Spec.SecurityContext
	return sc != nil && sc.FSGroupChangePolicy != nil && *sc.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch
}
