package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Debian is what is taken from Debian packages, unpacked in a cache and not installed.
type Debian struct {
	// Kernel is the bzImage; Modules the directory of its modules (.../lib/modules/RELEASE).
	Kernel, Modules string
	// Release is the kernel's release, as uname says it.
	Release string
	// Busybox is the static busybox.
	Busybox string
	// Systemd is a directory with the content of the packages of systemd, of D-Bus, and of the libraries that they need. Empty: not
	// asked for.
	Systemd string
}

// metaPackage depends on the newest kernel for clouds.
const metaPackage = "linux-image-cloud-amd64"

var kernelPackage = regexp.MustCompile(`linux-image-([0-9][^ ]*-cloud-amd64)`)

// systemdPackages are those that a machine with systemd has, beside the libraries that they depend on.
var systemdPackages = []string{"systemd", "dbus-daemon", "dbus-system-bus-common"}

// Fetch gets the packages from the host's Debian mirror, once: what is in the cache is used as it is. Clear the cache for
// newer ones.
func Fetch(ctx context.Context, cache string, systemd bool) (Debian, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Debian{}, err
	}
	busybox, err := unpacked(ctx, cache, "busybox-static", func(context.Context) ([]string, error) { return []string{"busybox-static"}, nil })
	if err != nil {
		return Debian{}, err
	}
	kernel, err := unpacked(ctx, cache, "kernel", concreteKernel)
	if err != nil {
		return Debian{}, err
	}
	images, _ := filepath.Glob(filepath.Join(kernel, "boot/vmlinuz-*"))
	modules, _ := filepath.Glob(filepath.Join(kernel, "lib/modules/*"))
	if len(images) != 1 || len(modules) != 1 {
		return Debian{}, fmt.Errorf("%s has %d kernels and %d directories of modules, want one each: remove it to fetch them again", kernel, len(images), len(modules))
	}
	d := Debian{Kernel: images[0], Modules: modules[0], Release: filepath.Base(modules[0])}
	for _, path := range []string{"bin/busybox", "usr/bin/busybox"} {
		if _, err := os.Stat(filepath.Join(busybox, path)); err == nil {
			d.Busybox = filepath.Join(busybox, path)
		}
	}
	if d.Busybox == "" {
		return Debian{}, fmt.Errorf("%s has no busybox: remove it to fetch it again", busybox)
	}
	if systemd {
		d.Systemd, err = unpacked(ctx, cache, "systemd", systemdWithLibraries)
	}
	return d, err
}

// concreteKernel resolves the meta package to the package that has the kernel.
func concreteKernel(ctx context.Context) ([]string, error) {
	out, err := runTool(ctx, "", "apt-cache", "depends", metaPackage)
	if err != nil {
		return nil, fmt.Errorf("%w (apt-get update may help)", err)
	}
	name := kernelPackage.FindString(out)
	if name == "" {
		return nil, fmt.Errorf("apt-cache depends %s names no kernel: %q; apt-get update may help", metaPackage, out)
	}
	return []string{name}, nil
}

// systemdWithLibraries lists the packages of systemd and all libraries that they depend on, whose names change from one Debian to the next.
func systemdWithLibraries(ctx context.Context) ([]string, error) {
	args := []string{"depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances"}
	out, err := runTool(ctx, "", "apt-cache", append(args, systemdPackages...)...)
	if err != nil {
		return nil, fmt.Errorf("%w (apt-get update may help)", err)
	}
	names := slices.Clone(systemdPackages)
	for line := range strings.Lines(out) {
		if name := strings.TrimSpace(line); strings.HasPrefix(line, "lib") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Unpacked returns a directory with the content of packages, by the name of as in the cache.
func Unpacked(ctx context.Context, cache, as string, packages ...string) (string, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	return unpacked(ctx, cache, as, func(context.Context) ([]string, error) { return packages, nil })
}

// unpacked returns the directory cache/as with the content of packages. It comes into being whole.
func unpacked(ctx context.Context, cache, as string, resolve func(context.Context) ([]string, error)) (string, error) {
	dir := filepath.Join(cache, as)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	names, err := resolve(ctx)
	if err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	// As root, apt would fetch as the user _apt, who cannot write here.
	if _, err := runTool(ctx, tmp, "apt-get", append([]string{"-o", "APT::Sandbox::User=root", "download"}, names...)...); err != nil {
		return "", fmt.Errorf("%w (apt-get update may help)", err)
	}
	debs, _ := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if len(debs) != len(names) {
		return "", fmt.Errorf("apt-get download %s brought %d files, want %d", strings.Join(names, " "), len(debs), len(names))
	}
	for _, deb := range debs {
		if _, err := runTool(ctx, tmp, "dpkg-deb", "-x", deb, filepath.Join(tmp, "x")); err != nil {
			return "", err
		}
	}
	err = os.Rename(filepath.Join(tmp, "x"), dir)
	if errors.Is(err, os.ErrExist) || err != nil && exists(dir) {
		err = nil // another run was faster
	}
	return dir, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
