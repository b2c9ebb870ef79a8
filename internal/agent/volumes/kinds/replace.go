package kinds

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	// dataLink points to the directory of the present version; it is the name that clients of written volumes know.
	dataLink    = "..data"
	dataLinkNew = "..data_tmp"
)

// replace makes p the content of the volume at dir, in one step for its readers: each name at the top is a link through
// ..data, and ..data is exchanged by a rename. gid is the group of the files, or -1.
func replace(dir string, p payload, gid int) error {
	old, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if old != "" && filepath.IsLocal(old) && same(filepath.Join(dir, old), p, gid) {
		return tidy(dir, p, old)
	}
	version, err := os.MkdirTemp(dir, "..v")
	if err != nil {
		return err
	}
	if err := fill(version, p, gid); err != nil {
		return errors.Join(err, os.RemoveAll(version))
	}
	name := filepath.Base(version)
	link := filepath.Join(dir, dataLinkNew)
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Symlink(name, link); err != nil {
		return err
	}
	if err := os.Rename(link, filepath.Join(dir, dataLink)); err != nil {
		return err
	}
	return tidy(dir, p, name)
}

// fill writes all files of p below dir.
func fill(dir string, p payload, gid int) error {
	if err := own(dir, 0o755, gid); err != nil {
		return err
	}
	for path, f := range p {
		parent := dir
		parts := strings.Split(path, string(filepath.Separator))
		for _, part := range parts[:len(parts)-1] {
			parent = filepath.Join(parent, part)
			if err := os.Mkdir(parent, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
			if err := own(parent, 0o755, gid); err != nil {
				return err
			}
		}
		full := filepath.Join(dir, path)
		if err := os.WriteFile(full, f.data, 0o600); err != nil {
			return err
		}
		if f.owner != nil {
			if err := os.Chown(full, int(*f.owner), -1); err != nil {
				return err
			}
		}
		if err := own(full, effective(f.mode, gid), gid); err != nil {
			return err
		}
	}
	return nil
}

// effective is the file's mode; a group that volumes belong to can read.
func effective(mode os.FileMode, gid int) os.FileMode {
	if gid >= 0 {
		mode |= 0o440
	}
	return mode
}

func own(path string, mode os.FileMode, gid int) error {
	if gid >= 0 {
		if err := os.Chown(path, -1, gid); err != nil {
			return err
		}
	}
	return os.Chmod(path, mode)
}

// same says that the directory holds exactly p.
func same(dir string, p payload, gid int) bool {
	found := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		want, ok := p[rel]
		if !ok {
			return errDiffers
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !bytes.Equal(data, want.data) || info.Mode().Perm() != effective(want.mode, gid) {
			return errDiffers
		}
		found++
		return nil
	})
	return err == nil && found == len(p)
}

var errDiffers = errors.New("the content differs")

// tidy makes the links at the top, and removes those of files that are gone and the versions before current. What else is there is a place that another
// volume is mounted at (nested.go), which the containers that have it keep.
func tidy(dir string, p payload, current string) error {
	top := map[string]bool{}
	for path := range p {
		name, _, _ := strings.Cut(path, string(filepath.Separator))
		top[name] = true
	}
	for name := range top {
		link := filepath.Join(dir, name)
		if _, err := os.Lstat(link); err == nil {
			continue
		}
		if err := os.Symlink(filepath.Join(dataLink, name), link); err != nil {
			return fmt.Errorf("link %s: %w", link, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if top[name] || name == dataLink || name == current || e.Type() != fs.ModeSymlink && !strings.HasPrefix(name, "..") {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
