package images

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
)

// libraryDirs are where a program of Debian's looks for shared libraries.
var libraryDirs = []string{"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu"}

// noProgramNeeds are parts of packages that are read by people, and by compilers.
var noProgramNeeds = []string{"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/lintian", "usr/share/doc-base", "lib/systemd"}

// Unpacked is an image of busybox and of what is in a directory into which Debian's packages were unpacked, but for their documentation and what lies below without.
// The shared libraries that programs want (paths below the directory) are taken from there, or else from this machine.
func Unpacked(name, dir string, programs, without []string) (ociarchive.Image, error) {
	base, err := busyboxLayer()
	if err != nil {
		return ociarchive.Image{}, err
	}
	skipped := slices.Concat(noProgramNeeds, without)
	var layer ociarchive.Layer
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if slices.Contains(skipped, rel) {
			return filepath.SkipDir
		}
		entry := ociarchive.File{Path: rel}
		switch {
		case d.IsDir():
			return nil
		case d.Type() == fs.ModeSymlink:
			entry.Symlink, err = os.Readlink(file)
		default:
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				entry.Mode = int64(info.Mode().Perm())
				entry.Data, err = os.ReadFile(file)
			}
		}
		layer = append(layer, entry)
		return err
	})
	if err != nil {
		return ociarchive.Image{}, fmt.Errorf("test image %s: %w", name, err)
	}
	libraries, err := hostLibraries(dir, programs)
	if err != nil {
		return ociarchive.Image{}, fmt.Errorf("test image %s: %w", name, err)
	}
	return ociarchive.Image{
		Name: name, Config: ocispec.ImageConfig{Env: []string{searchPath}}, Layers: []ociarchive.Layer{base, append(layer, libraries...)}, Uncompressed: true,
	}, nil
}

// hostLibraries are the shared libraries and the loader that programs below a directory want and that are not there, as this machine has them.
func hostLibraries(dir string, programs []string) (layer ociarchive.Layer, err error) {
	seen := map[string]bool{}
	var need func(file string) error
	need = func(file string) error {
		f, err := elf.Open(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		defer f.Close()
		wanted, err := f.ImportedLibraries()
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, lib := range wanted {
			if seen[lib] {
				continue
			}
			seen[lib] = true
			at, ours, err := findLibrary(dir, lib)
			if err != nil {
				return fmt.Errorf("%s wants %w", file, err)
			}
			if !ours {
				data, err := os.ReadFile(at)
				if err != nil {
					return err
				}
				layer = append(layer, ociarchive.File{Path: path.Join(filepath.Dir(at), lib), Data: data, Mode: 0o755})
			}
			if err := need(at); err != nil {
				return err
			}
		}
		return nil
	}
	for _, p := range programs {
		if err := need(filepath.Join(dir, p)); err != nil {
			return nil, err
		}
	}
	return layer, loader(&layer)
}

// findLibrary is where a shared library is: below the directory (ours), or on this machine.
func findLibrary(dir, lib string) (at string, ours bool, err error) {
	for _, root := range []string{dir, "/"} {
		for _, in := range libraryDirs {
			at := filepath.Join(root, in, lib)
			if _, err := os.Stat(at); err == nil {
				return at, root == dir, nil
			} else if !errors.Is(err, fs.ErrNotExist) {
				return "", false, err
			}
		}
	}
	return "", false, fmt.Errorf("%s, which is in none of the packages and not on this machine", lib)
}

// loader adds the program that loads all others, where they look for it.
func loader(layer *ociarchive.Layer) error {
	for _, at := range []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"} {
		data, err := os.ReadFile(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		*layer = append(*layer, ociarchive.File{Path: strings.TrimPrefix(at, "/"), Data: data, Mode: 0o755})
		return err
	}
	return errors.New("this machine has no loader of shared libraries")
}
