package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// systemdPackages are those that a machine with systemd has, beside the libraries that they depend on.
var systemdPackages = []string{"systemd", "dbus-daemon", "dbus-system-bus-common"}

// Fetch gets the packages of an architecture ("": NativeArch) from the host's Debian mirror, once: what is in the cache is used as it is. Clear the cache
// for newer ones.
func Fetch(ctx context.Context, cache, architecture string, systemd bool) (Debian, error) {
	arch, err := archOf(architecture)
	if err != nil {
		return Debian{}, err
	}
	mirror, err := openMirror(ctx, cache, architecture)
	if err != nil {
		return Debian{}, err
	}
	busybox, err := mirror.unpacked(ctx, "busybox-static", only("busybox-static"))
	if err != nil {
		return Debian{}, err
	}
	kernel, err := mirror.unpacked(ctx, "kernel", arch.concreteKernel)
	if err != nil {
		return Debian{}, err
	}
	images, _ := filepath.Glob(filepath.Join(kernel, "boot/vmlinuz-*"))
	modules, _ := filepath.Glob(filepath.Join(kernel, "lib/modules/*"))
	if len(images) != 1 || len(modules) != 1 {
		return Debian{}, fmt.Errorf("%s has %d kernels and %d directories of modules, want one each: remove it to fetch them again", kernel, len(images), len(modules))
	}
	d := Debian{Kernel: images[0], Modules: modules[0], Release: filepath.Base(modules[0])}
	if d.Busybox, err = busyboxIn(busybox); err != nil {
		return Debian{}, err
	}
	if systemd {
		d.Systemd, err = mirror.unpacked(ctx, "systemd", systemdWithLibraries)
	}
	return d, err
}

// busyboxIn is where the content of Debian's package has it.
func busyboxIn(dir string) (string, error) {
	for _, path := range []string{"bin/busybox", "usr/bin/busybox"} {
		if exists(filepath.Join(dir, path)) {
			return filepath.Join(dir, path), nil
		}
	}
	return "", fmt.Errorf("%s has no busybox: remove it to fetch it again", dir)
}

// concreteKernel resolves the meta package to the package that has the kernel.
func (a arch) concreteKernel(ctx context.Context, m mirror) ([]string, error) {
	out, err := m.run(ctx, "", "apt-cache", "depends", a.metaPackage)
	if err != nil {
		return nil, fmt.Errorf("%w (apt-get update may help)", err)
	}
	name := a.kernelPackage.FindString(out)
	if name == "" {
		return nil, fmt.Errorf("apt-cache depends %s names no kernel: %q; apt-get update may help", a.metaPackage, out)
	}
	return []string{name}, nil
}

// systemdWithLibraries lists the packages of systemd and all libraries that they depend on, whose names change from one Debian to the next.
func systemdWithLibraries(ctx context.Context, m mirror) ([]string, error) {
	args := []string{"depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances"}
	out, err := m.run(ctx, "", "apt-cache", append(args, systemdPackages...)...)
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
	mirror, err := openMirror(ctx, cache, NativeArch)
	if err != nil {
		return "", err
	}
	return mirror.unpacked(ctx, as, only(packages...))
}

// mirror is the host's Debian mirror, as seen from a machine of one architecture.
type mirror struct {
	// cache is where its packages are unpacked.
	cache string
	// options of apt's programs.
	options []string
}

// openMirror returns the mirror for an architecture. For one that is not the host's it has lists of packages of its own, below the cache: the host's stay as
// they are.
func openMirror(ctx context.Context, cache, architecture string) (mirror, error) {
	m := mirror{cache: cache}
	if architecture == "" || architecture == NativeArch {
		return m, os.MkdirAll(cache, 0o755)
	}
	m.cache = filepath.Join(cache, architecture)
	apt := filepath.Join(m.cache, "apt")
	m.options = []string{"-o", "APT::Architecture=" + architecture, "-o", "APT::Architectures=" + architecture, "-o", "APT::Sandbox::User=root",
		"-o", "Dir::State::lists=" + filepath.Join(apt, "lists"), "-o", "Dir::Cache=" + filepath.Join(apt, "cache")}
	fetched := exists(filepath.Join(apt, "fetched"))
	for _, dir := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(apt, dir), 0o755); err != nil {
			return m, err
		}
	}
	if fetched {
		return m, nil
	}
	if _, err := m.run(ctx, "", "apt-get", "update"); err != nil {
		return m, err
	}
	return m, os.WriteFile(filepath.Join(apt, "fetched"), nil, 0o644)
}

// run runs one of apt's programs in a directory.
func (m mirror) run(ctx context.Context, dir, name string, args ...string) (string, error) {
	return runTool(ctx, dir, name, append(slices.Clone(m.options), args...)...)
}

// only resolves to the packages that are named.
func only(packages ...string) func(context.Context, mirror) ([]string, error) {
	return func(context.Context, mirror) ([]string, error) { return packages, nil }
}

// unpacked returns the directory of the cache by the name of as, with the content of packages. It comes into being whole.
func (m mirror) unpacked(ctx context.Context, as string, resolve func(context.Context, mirror) ([]string, error)) (string, error) {
	dir := filepath.Join(m.cache, as)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	names, err := resolve(ctx, m)
	if err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(m.cache, "fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	// As root, apt would fetch as the user _apt, who cannot write here.
	if _, err := m.run(ctx, tmp, "apt-get", append([]string{"-o", "APT::Sandbox::User=root", "download"}, names...)...); err != nil {
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
