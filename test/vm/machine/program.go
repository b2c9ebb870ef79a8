package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Programs are programs of this host with their shared libraries, for Config.Files, each where it is here. A link is followed: the file is put where the link is.
func Programs(ctx context.Context, paths ...string) (map[string]string, error) {
	files := map[string]string{}
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("a program for the machine: %w; `make test-deps vm-deps` installs the Debian packages", err)
		}
		out, err := exec.CommandContext(ctx, "ldd", path).Output()
		if err != nil {
			return nil, fmt.Errorf("ldd %s: %w", path, err)
		}
		files[path] = path
		for word := range strings.FieldsSeq(string(out)) {
			if strings.HasPrefix(word, "/") {
				files[word] = word
			}
		}
	}
	return files, nil
}

// Disks is what tests of disks need that this host may lack: ext4 and xfs with project quotas in files that loop devices show, and NFS with a server of its own.
type Disks struct {
	// Modules and Files are for Config, Env for its job: by it no test is skipped for want of a disk (test/smallfs).
	Modules []string
	Files   map[string]string
	Env     []string
}

// NewDisks gathers it.
func NewDisks(ctx context.Context) (Disks, error) {
	files, err := Programs(ctx, "/usr/sbin/mkfs.ext4", "/usr/sbin/mkfs.xfs")
	if err != nil {
		return Disks{}, err
	}
	return Disks{Modules: []string{"loop", "quota_v2", "xfs", "nfsd", "nfsv4", "md5"}, Files: files, Env: []string{"MONOPOD_TEST_DISKS=ext4 xfs nfs"}}, nil
}
