package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// staticTags and staticLinking are those of programs with C in them that run wherever there is a kernel.
const (
	staticTags    = "seccomp netgo osusergo"
	staticLinking = `-s -w -linkmode external -extldflags "-static"`
)

// BuildExecutor builds monopod-executor into the directory and returns its path; or it takes the one in $MONOPOD_BIN, where there is
// nothing to build with.
func BuildExecutor(dir string) (string, error) {
	if bin := os.Getenv("MONOPOD_BIN"); bin != "" {
		return filepath.Join(bin, "monopod-executor"), nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	return buildStatic(root, dir, root, "monopod.dev/monopod/cmd/monopod-executor")
}

// buildStatic builds a package that needs cgo, in the folder of its module, into the directory. Linking takes seconds, and several packages'
// tests want the same programs: they are kept in bin/test of the repository, where the go command sees whether they are up to date.
func buildStatic(root, dir, module, pkg string) (path string, err error) {
	kept := filepath.Join(root, "bin", "test")
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(kept, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	name := filepath.Base(pkg)
	cmd := exec.Command("go", "build", "-mod=readonly", "-trimpath", "-tags", staticTags, "-ldflags", staticLinking, "-o", filepath.Join(kept, name), pkg)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s (Debian packages gcc, libseccomp-dev, pkg-config): %w\n%s", name, err, out)
	}
	// A copy, so that who has it is not affected by the next build. It is made by another process: one that this process writes itself
	// could not be executed as long as a child, forked meanwhile for something else, has it open.
	path = filepath.Join(dir, name)
	if out, err := exec.Command("cp", filepath.Join(kept, name), path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("copy %s: %w\n%s", name, err, out)
	}
	return path, nil
}
