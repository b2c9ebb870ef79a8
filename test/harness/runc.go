package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

const runcModule = "github.com/opencontainers/runc"

// BuildRunc builds runc into the directory, linked statically, and returns its path; or it takes $MONOPOD_RUNC, where there is nothing to
// build with. What it is made of is pinned in test/runc, at the version of libcontainer that the executor has.
func BuildRunc(dir string) (string, error) {
	if path := os.Getenv("MONOPOD_RUNC"); path != "" {
		return path, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	pinned := filepath.Join(root, "test", "runc")
	if err := sameRunc(filepath.Join(root, "go.mod"), filepath.Join(pinned, "go.mod")); err != nil {
		return "", err
	}
	return buildStatic(root, dir, pinned, runcModule)
}

var runcVersion = regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(runcModule) + ` (v\S+)`)

// sameRunc says whether both go.mod files want the same version of runc.
func sameRunc(ours, pinned string) error {
	var versions [2]string
	for i, path := range []string{ours, pinned} {
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found := runcVersion.FindSubmatch(raw)
		if found == nil {
			return fmt.Errorf("%s does not require %s", path, runcModule)
		}
		versions[i] = string(found[1])
	}
	if versions[0] != versions[1] {
		return fmt.Errorf("%s has libcontainer %s and %s has runc %s, which the tests compare: run `go get -tool %s@%s` in %s",
			ours, versions[0], pinned, versions[1], runcModule, versions[0], filepath.Dir(pinned))
	}
	return nil
}

// moduleRoot is the folder of go.mod at or above the working directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); !errors.Is(err, fs.ErrNotExist) {
			return dir, err
		}
		if dir == "/" {
			return "", errors.New("no go.mod above the working directory")
		}
	}
}
