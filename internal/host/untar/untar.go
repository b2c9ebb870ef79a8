// Package untar unpacks the tar of one image layer into a directory, in the form in which an overlay takes a directory
// as one of its layers: a whiteout is a character device 0:0, an opaque directory has the attribute trusted.overlay.opaque.
//
// A layer is hostile input. It guarantees:
//   - nothing outside of the directory is created, changed, linked to or removed, whatever names and links the tar has:
//     the kernel resolves every path with the directory as its root (openat2, RESOLVE_IN_ROOT), and what a path ends in
//     is never followed;
//   - a tar that is larger than the limits of Options ends with an error before it has filled the disk, or the memory;
//   - attributes trusted.* of the tar are left out, for they would steer the overlay, and so are those of security.* by which a policy of
//     the machine labels its files: of security.* only file capabilities and IMA's signatures are the image's own;
//   - no path is longer than the system's calls can name it (PATH_MAX), the layer's directory included.
//
// The tar of a whole directory (Options.Tree) is unpacked under the same guarantees, without what overlays want.
//
// It does not sync what it writes, and a tar that fails leaves the directory half filled: the caller removes it.
// Nobody else may write to the directory meanwhile.
package untar

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Options bounds what a layer may be. A limit of 0 is none.
type Options struct {
	// MaxBytes is how many bytes all files of the layer may have together, and how many the tar may have.
	MaxBytes int64
	// MaxEntries is how many entries the tar may have.
	MaxEntries int
	// MaxMemory bounds what the directories of a layer take of the memory until its end: the bytes of their paths, and 64 for each.
	MaxMemory int64
	// Room is asked for every MiB and every 64 entries whether there is room for more; its error ends the unpacking. It may be nil.
	Room func() error
	// Warn is told what of the tar is left out. It may be nil.
	Warn func(msg string, args ...any)
	// Tree: the tar is not that of a layer; nil: it is.
	Tree *Tree
}

// Tree says that a tar is that of a directory with all that is in it. A name that begins with .wh. is a file's; the tar says what the directory itself is; blocks of
// zeros become holes, and count for nothing; attributes trusted.overlay.* are kept; devices are refused, but for 0:0, which is what an overlay in it has for a whiteout.
type Tree struct {
	// Below is the name of the directory in the tar.
	Below string
	// Other is called with each entry that is not in it; done: what follows is not read.
	Other func(h *tar.Header, data io.Reader) (done bool, err error)
}

// maxHoles is how many bytes the holes of a Tree may have together. They cost time only.
const maxHoles = 16 << 40

// Result tells what was unpacked.
type Result struct {
	// Bytes is the size of all files together.
	Bytes   int64
	Entries int
	// Implied are directories that the tar has files in but no entry for, as absolute paths within the layer, parents
	// first: they are what they are in the layers below (Inherit).
	Implied []string
}

// Apply unpacks the tar that r delivers into dir. It reads r as far as the end of the tar.
//
// Errors: InvalidArgument (no tar, or one that makes no sense), ResourceExhausted (a limit), else what the system says.
func Apply(ctx context.Context, dir string, r io.Reader, opts Options) (Result, error) {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Result{}, fmt.Errorf("the directory %s: %w", dir, err)
	}
	u := &unpacker{opts: opts, root: root, parent: -1, implied: map[string]bool{}, buf: make([]byte, 256<<10)}
	defer u.close()
	if u.dirLen, err = u.pathLen(root); err != nil {
		return Result{}, fmt.Errorf("the layer's directory %s: %w", dir, err)
	}
	u.in = &input{r: r, max: opts.MaxBytes, tooLong: u.tooLong}
	if opts.Tree != nil && opts.MaxBytes > 0 {
		u.in.max += opts.MaxBytes/16 + int64(opts.MaxEntries)*treeEntry // headers, and the maps of files with holes
	}
	tr := tar.NewReader(u.in)
	for ctx.Err() == nil {
		if u.done {
			return u.finish()
		}
		h, err := tr.Next()
		if err == io.EOF {
			return u.finish()
		}
		if err != nil {
			return Result{}, u.readError(err)
		}
		if err := u.count(h); err != nil {
			return Result{}, err
		}
		if err := u.entry(h, tr); err != nil {
			return Result{}, fmt.Errorf("entry %s: %w", quote(h.Name), classify(err))
		}
	}
	return Result{}, context.Cause(ctx)
}

type unpacker struct {
	opts   Options
	result Result

	in         *input
	root       int    // the layer's directory
	dirLen     int    // of its path
	parentPath string // the directory that the last entry was in, and its descriptor or -1
	parent     int
	parentLen  int  // of its path, links resolved, from the machine's root
	linked     bool // the layer has symbolic links

	done    bool  // Tree.Other has said so
	logical int64 // size of all files of a Tree, holes included

	implied map[string]bool
	order   []string // of implied
	dirs    []dirTime
	buf     []byte

	remembered int64 // what implied, order and dirs take
	unasked    int64 // bytes written since there was last asked for room
	warned     int
}

// dirTime is the time that a directory gets when nothing is made in it any more.
type dirTime struct {
	path  string
	times [2]unix.Timespec
}

func (u *unpacker) close() {
	u.forget()
	unix.Close(u.root) // nothing was written to it
}

// forget closes the cached directory: the path may lead elsewhere now.
func (u *unpacker) forget() {
	if u.parent >= 0 {
		unix.Close(u.parent) // as above
	}
	u.parent, u.parentPath = -1, ""
}

// finish sets the times of directories, which every file that is made in them changes.
func (u *unpacker) finish() (Result, error) {
	if u.warned > maxWarnings {
		u.opts.Warn("more of the "+u.what()+" is left out, for the same reasons", "times", u.warned-maxWarnings)
	}
	for _, d := range u.dirs {
		fd, err := u.openDir(d.path, unix.O_RDONLY|unix.O_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue // a later entry has replaced it
		}
		if err != nil {
			return Result{}, fmt.Errorf("directory %q: %w", d.path, err)
		}
		err = futimens(fd, d.times)
		unix.Close(fd) // nothing was written to it
		if err != nil {
			return Result{}, fmt.Errorf("directory %q: times: %w", d.path, err)
		}
	}
	u.order = slices.DeleteFunc(u.order, func(p string) bool { return !u.implied[p] })
	u.result.Implied = u.order
	return u.result, nil
}

// openDir opens a directory of the layer. Symbolic links on the way are followed, within the layer.
func (u *unpacker) openDir(p string, flags uint64) (int, error) { return openIn(u.root, p, flags) }

func openIn(root int, p string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(root, "."+p, &how)
		if err == unix.EINTR || err == unix.EAGAIN { // EAGAIN: something was renamed on the machine meanwhile
			continue
		}
		return fd, err
	}
}

// dir returns the directory that an entry is in. It is made when it is missing.
func (u *unpacker) dir(p string) (int, error) {
	if u.parent >= 0 && u.parentPath == p {
		return u.parent, nil
	}
	fd, err := u.openDir(p, unix.O_PATH)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		if err := u.makeDir(p, 0); err != nil {
			return -1, err
		}
		fd, err = u.openDir(p, unix.O_PATH)
	}
	if err != nil {
		return -1, fmt.Errorf("directory %s: %w", quote(p), linkError(err))
	}
	u.forget()
	u.parent, u.parentPath, u.parentLen = fd, p, u.dirLen+len(p)
	if u.linked {
		if u.parentLen, err = u.pathLen(fd); err != nil {
			return -1, fmt.Errorf("directory %s: %w", quote(p), err)
		}
	}
	return fd, nil
}

// pathLen is how long the path of a directory is. Through symbolic links directories can be made so deep that they have no path, and
// whoever counts or removes the layer later needs one.
func (u *unpacker) pathLen(fd int) (int, error) {
	return unix.Readlink("/proc/self/fd/"+strconv.Itoa(fd), u.buf[:unix.PathMax]) // ENAMETOOLONG when it has none
}

// maxLinks is how many symbolic links may lie on a path; it is the kernel's own limit.
const maxLinks = 40

// makeDir makes a directory with its parents, where a link leads to nowhere also what it names.
func (u *unpacker) makeDir(p string, links int) error {
	if links > maxLinks {
		return fmt.Errorf("directory %s: %w", quote(p), unix.ELOOP)
	}
	at, rest := "/", p
	for rest != "" {
		var name string
		name, rest = cutName(rest)
		if name == "" {
			continue
		}
		link, err := u.makeOne(at, name)
		if err != nil {
			return fmt.Errorf("directory %s: %w", quote(path.Join(at, name)), err)
		}
		if link != "" {
			if !path.IsAbs(link) {
				link = path.Join(at, link)
			}
			return u.makeDir(path.Join("/", link, rest), links+1)
		}
		at = path.Join(at, name)
	}
	return nil
}

func cutName(p string) (name, rest string) {
	for i := range len(p) {
		if p[i] == '/' {
			return p[:i], p[i+1:]
		}
	}
	return p, ""
}

// makeOne makes one directory unless there is one. It returns the target of a link that leads to nowhere.
func (u *unpacker) makeOne(at, name string) (link string, err error) {
	dir, err := u.openDir(at, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer unix.Close(dir) // nothing was written to it
	full := path.Join(at, name)
	err = unix.Mkdirat(dir, name, 0o755)
	if err == nil {
		return "", u.imply(dir, name, full)
	}
	if !errors.Is(err, unix.EEXIST) {
		return "", err
	}
	fd, err := u.openDir(full, unix.O_PATH)
	switch {
	case err == nil:
		return "", unix.Close(fd)
	case errors.Is(err, unix.ENOENT): // a link, and what it names is not there
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, name, target)
		return string(target[:max(n, 0)]), err
	case errors.Is(err, unix.ENOTDIR) && u.opts.Tree == nil && isWhiteout(dir, name):
		if err := unix.Unlinkat(dir, name, 0); err != nil {
			return "", err
		}
		if err := unix.Mkdirat(dir, name, 0o755); err != nil {
			return "", err
		}
		return "", errors.Join(u.imply(dir, name, full), setOpaque(dir, name))
	}
	return "", linkError(err)
}

// imply remembers a directory that the tar has no entry for.
func (u *unpacker) imply(dir int, name, full string) error {
	if !u.implied[full] {
		u.implied[full] = true
		u.order = append(u.order, full)
		if err := u.remember(full); err != nil {
			return err
		}
	}
	return unix.Fchmodat(dir, name, 0o755, 0) // the umask of this process is not meant for images
}

func futimens(fd int, times [2]unix.Timespec) error {
	return unix.UtimesNanoAt(fd, "", times[:], unix.AT_EMPTY_PATH)
}

// times are what an entry says, within what file systems can hold.
func times(h *tar.Header) [2]unix.Timespec {
	access := h.AccessTime
	if access.Before(h.ModTime) {
		access = h.ModTime
	}
	return [2]unix.Timespec{timespec(access), timespec(h.ModTime)}
}

func timespec(t time.Time) unix.Timespec {
	if t.Unix() < 0 || t.Unix() > 1<<33 {
		return unix.Timespec{}
	}
	return unix.Timespec{Sec: t.Unix(), Nsec: int64(t.Nanosecond())}
}
