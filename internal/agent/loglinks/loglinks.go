// Package loglinks keeps links to the logs of containers in one directory, by which log shippers find them: POD_NAMESPACE_CONTAINER-ID.log, a
// kubelet's names.
//
// A link leads to the file that is written now; what was rotated lies beside that. The directory may be shared with other nodes of the machine: only links
// that lead below the node's own directory of logs are ever removed. Nothing is remembered beside the links.
package loglinks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"monopod.dev/monopod/internal/kit/ids"
)

const (
	suffix = ".log"
	// maxName is the longest name of a file.
	maxName = 255
)

// Config says where the links are, and where they lead.
type Config struct {
	// Dir is the directory of the links, an absolute path; it is made when it is missing. Empty: there are none.
	Dir string
	// LogsDir is the directory of all pods' logs, an absolute path.
	LogsDir string
}

// Links are the links of a node. It is safe for concurrent use, but for the same container.
type Links struct{ cfg Config }

// New makes nothing yet.
func New(cfg Config) *Links {
	cfg.Dir, cfg.LogsDir = clean(cfg.Dir), clean(cfg.LogsDir)
	return &Links{cfg: cfg}
}

func clean(dir string) string {
	if dir == "" {
		return ""
	}
	return filepath.Clean(dir)
}

// Container names a container.
type Container struct {
	Pod, Namespace, Name string
	ID                   ids.ContainerID
}

// path is where the container's link is. whole is false where its name had to be cut, so that it may be another container's, too.
func (l *Links) path(c Container) (path string, whole bool, err error) {
	name := c.Pod + "_" + c.Namespace + "_" + c.Name + "-" + string(c.ID)
	if strings.ContainsAny(name, "/\x00") || c.ID == "" {
		return "", false, fmt.Errorf("the container %q has no name that a link can have", name)
	}
	whole = len(name) <= maxName-len(suffix)
	if !whole {
		name = name[:maxName-len(suffix)]
	}
	return filepath.Join(l.cfg.Dir, name+suffix), whole, nil
}

// Link makes the link of a container that has been started, whose log is at that absolute path. There is none to a log that is not there, as with a
// runtime that writes no files. It is idempotent.
func (l *Links) Link(c Container, log string) error {
	if l.cfg.Dir == "" {
		return nil
	}
	path, _, err := l.path(c)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(log); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err = os.Symlink(log, path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(l.cfg.Dir, 0o755); err == nil {
			err = os.Symlink(log, path)
		}
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if to, err := os.Readlink(path); err == nil && to == log {
		return nil
	}
	// A name that was cut is the last container's.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(log, path)
}

// Remove removes the link of a container that is gone; none is no error. One whose name was cut is left to RemovePod and Sweep: it may be another's.
func (l *Links) Remove(c Container) error {
	if l.cfg.Dir == "" {
		return nil
	}
	path, whole, err := l.path(c)
	if err != nil || !whole {
		return err
	}
	return l.remove(path)
}

// RemovePod removes all links to logs in the directory of a pod's logs, an absolute path.
func (l *Links) RemovePod(namespace, name, logDir string) error {
	prefix := name + "_" + namespace + "_"
	prefix = prefix[:min(len(prefix), maxName-len(suffix))]
	return l.each(func(file, to string) error {
		if !strings.HasPrefix(file, prefix) || !within(filepath.Clean(logDir), to) {
			return nil
		}
		return l.remove(filepath.Join(l.cfg.Dir, file))
	})
}

// Sweep removes the links that lead nowhere. live says of a container's ID whether the container may still write: the log of such a one is away for a
// moment while it is rotated. Nil: none is.
func (l *Links) Sweep(live func(id string) bool) error {
	return l.each(func(file, to string) error {
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if id := file[strings.LastIndexByte(file, '-')+1:]; live != nil && live(strings.TrimSuffix(id, suffix)) {
			return nil
		}
		return l.remove(filepath.Join(l.cfg.Dir, file))
	})
}

// each visits the node's links, with where they lead. It goes on after an error.
func (l *Links) each(visit func(file, to string) error) error {
	if l.cfg.Dir == "" {
		return nil
	}
	entries, err := os.ReadDir(l.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.Type() != fs.ModeSymlink || !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		to, err := os.Readlink(filepath.Join(l.cfg.Dir, e.Name()))
		if err == nil && within(l.cfg.LogsDir, to) {
			err = visit(e.Name(), to)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it has gone meanwhile
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// remove removes a link of the node's. What is no link, or leads elsewhere, is another's.
func (l *Links) remove(path string) error {
	to, err := os.Readlink(path)
	if err == nil && within(l.cfg.LogsDir, to) {
		err = os.Remove(path)
	}
	if pathErr := (*fs.PathError)(nil); errors.Is(err, fs.ErrNotExist) || errors.As(err, &pathErr) && pathErr.Op == "readlink" {
		return nil
	}
	return err
}

// within says that a path leads below a directory, by its name.
func within(dir, path string) bool {
	return filepath.IsAbs(path) && filepath.Clean(path) == path && strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
