//go:build cgo

package ocicmd

import (
	"errors"
	"path"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// canExecute says whether a process's program may be there to be executed, as a process with the root and of its user sees it. What lies on the
// mounts is not looked at, and may be. It is for telling, of a runtime that has failed, whether the program was the reason: runtimes tell
// that to people only.
func canExecute(root string, p *specs.Process, ids idMaps, mounts []specs.Mount) bool {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	found := false
	looked := asUser(p, ids, func() {
		found = slices.ContainsFunc(programs(p), func(name string) bool { return onMount(name, mounts) || isProgram(fd, name) })
	})
	return found || !looked
}

// programs are the paths at which a process's program is looked for.
func programs(p *specs.Process) (paths []string) {
	in := func(dir, name string) string {
		if path.IsAbs(name) {
			return path.Clean(name)
		}
		return path.Join(dir, name)
	}
	name := p.Args[0]
	if strings.Contains(name, "/") {
		return []string{in(p.Cwd, name)}
	}
	for _, kv := range p.Env {
		if list, ok := strings.CutPrefix(kv, "PATH="); ok {
			paths = nil // the last one counts
			for dir := range strings.SplitSeq(list, ":") {
				paths = append(paths, path.Join(in(p.Cwd, dir), name))
			}
		}
	}
	return paths
}

func onMount(name string, mounts []specs.Mount) bool {
	for _, m := range mounts {
		if at := path.Clean(m.Destination); name == at || strings.HasPrefix(name, strings.TrimSuffix(at, "/")+"/") {
			return true
		}
	}
	return false
}

// isProgram says whether this thread may execute a file below the root. What cannot be looked at for another reason may be one.
func isProgram(root int, name string) bool {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(root, strings.TrimLeft(name, "/"), how)
	if err != nil {
		return !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.EACCES)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return true
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0 {
		return false
	}
	return !errors.Is(unix.Faccessat2(fd, "", unix.X_OK, unix.AT_EACCESS|unix.AT_EMPTY_PATH), unix.EACCES)
}
