package sandbox

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// LogDirectory is the directory of the logs of the sandbox's containers, free of symbolic links; empty: they have none. Links that lead
// to it are the administrator's (/var/log may be elsewhere) as long as no container of the sandbox runs. After that they may be a
// container's, which has the directory mounted: so they are followed once, when the sandbox is made.
func (r *Record) LogDirectory() (string, error) {
	if r.LogDir != "" {
		return r.LogDir, nil
	}
	return resolveLogDir(r.Config().GetLogDirectory())
}

// resolveLogDir resolves what is there of a path. What is not there yet is no link.
func resolveLogDir(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	dir = filepath.Clean(dir)
	found, err := filepath.EvalSymlinks(dir)
	if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
		return found, err
	}
	parent, err := resolveLogDir(filepath.Dir(dir))
	return filepath.Join(parent, filepath.Base(dir)), err
}
