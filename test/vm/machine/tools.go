package machine

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// debianPackages are where the programs that are needed come from, beside the emulator (arch).
var debianPackages = map[string]string{
	"mke2fs":    "e2fsprogs",
	"dpkg-deb":  "dpkg",
	"apt-get":   "apt",
	"apt-cache": "apt",
}

// lookTool finds a program, also where root's are.
func lookTool(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name)
	}
	if err != nil {
		return "", fmt.Errorf("%s is not installed: apt-get install %s", name, packageOf(name))
	}
	return path, nil
}

// packageOf is the Debian package of a program.
func packageOf(tool string) string {
	for _, a := range archs {
		if a.qemu == tool {
			return a.qemuPackage
		}
	}
	return debianPackages[tool]
}

// CheckTools returns an error that names every program that is missing for machines of an architecture ("": NativeArch), with its Debian package.
func CheckTools(architecture string) error {
	arch, err := archOf(architecture)
	if err != nil {
		return err
	}
	var missing []string
	for _, name := range []string{arch.qemu, "mke2fs", "dpkg-deb", "apt-get"} {
		if _, err := lookTool(name); err != nil {
			missing = append(missing, packageOf(name))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the virtual machine needs Debian packages that are not installed: apt-get install --no-install-recommends %s", strings.Join(missing, " "))
	}
	return nil
}

// runTool runs a program in a directory, and returns its standard output. An error has what it printed.
func runTool(ctx context.Context, dir, name string, args ...string) (string, error) {
	path, err := lookTool(name)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), nil
}
