package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// builder makes keys of packages.
type builder struct {
	module, dir string
	base        string // what is part of each key
	plain, cgo  map[string]*listed
	files       map[string]string // hashes by path
}

// packages are those with tests, by name.
func (b *builder) packages(plain, cgo []string) ([]pkg, error) {
	var all []pkg
	for _, names := range [][]string{plain, cgo} {
		for _, name := range names {
			deps := b.plain
			if slices.Contains(cgo, name) {
				deps = b.cgo
			}
			p, tests, err := b.one(name, deps)
			if err != nil {
				return nil, err
			}
			if tests {
				p.Cgo = slices.Contains(cgo, name)
				all = append(all, p)
			}
		}
	}
	slices.SortFunc(all, func(a, b pkg) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

func (b *builder) one(name string, deps map[string]*listed) (p pkg, tests bool, err error) {
	l, bin := deps[name], deps[name+".test"]
	if l == nil || bin == nil {
		return p, false, nil // no test files
	}
	var sources strings.Builder
	for _, f := range slices.Concat(l.TestGoFiles, l.XTestGoFiles) {
		raw, err := os.ReadFile(filepath.Join(l.Dir, f))
		if err != nil {
			return p, false, err
		}
		sources.Write(raw)
	}
	e := examine(strings.TrimPrefix(name, b.module+"/"), sources.String())
	if !e.tests {
		return p, false, nil
	}
	parts := []string{b.base}
	if err := b.addDeps(&parts, bin, deps); err != nil {
		return p, false, err
	}
	for _, program := range e.programs {
		full := b.module + "/" + program
		in := b.plain
		if in[full] == nil {
			in = b.cgo
		}
		if main := in[full]; main != nil {
			if err := b.addDeps(&parts, main, in); err != nil {
				return p, false, err
			}
		}
	}
	paths := []string{filepath.Join(l.Dir, "testdata")}
	for _, path := range e.paths {
		paths = append(paths, filepath.Join(l.Dir, path))
	}
	if e.runc {
		paths = append(paths, filepath.Join(b.dir, "test", "runc"))
	}
	if e.everything {
		paths = []string{b.dir}
	}
	for _, path := range paths {
		if err := b.addTree(&parts, path); err != nil {
			return p, false, err
		}
	}
	return pkg{Path: name, Key: keyOf(parts), Containers: e.containers}, true, nil
}

// keyOf is a hash of parts, in whatever order they were found.
func keyOf(parts []string) string {
	slices.Sort(parts)
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(parts), "\n")))
	return hex.EncodeToString(sum[:16])
}

// addDeps adds all that a binary is made of.
func (b *builder) addDeps(parts *[]string, bin *listed, all map[string]*listed) error {
	for _, name := range append([]string{bin.ImportPath}, bin.Deps...) {
		l := all[name]
		switch {
		case l == nil || l.Standard: // the standard library is the version of Go
		case l.Module != nil && !l.Module.Main:
			m := l.Module
			if m.Replace != nil {
				m = m.Replace
			}
			*parts = append(*parts, "module "+m.Path+" "+m.Version)
		case strings.HasSuffix(name, ".test"): // made by the go command
		default:
			for _, f := range slices.Concat(l.GoFiles, l.CgoFiles, l.CFiles, l.HFiles, l.SFiles, l.SysoFiles, l.EmbedFiles) {
				if err := b.addFile(parts, filepath.Join(l.Dir, f)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// left out are folders of the repository that nothing is made of.
var leftOut = []string{".git", "bin", "_out", "_run"}

// addTree adds all files of a directory, or a file. One that is not there is nothing.
func (b *builder) addTree(parts *[]string, path string) error {
	return filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if rel, _ := filepath.Rel(b.dir, at); slices.Contains(leftOut, rel) {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		return b.addFile(parts, at)
	})
}

// addFile adds a file, by its path in the module and its content.
func (b *builder) addFile(parts *[]string, path string) error {
	rel, err := filepath.Rel(b.dir, path)
	if err != nil {
		return err
	}
	sum, known := b.files[path]
	if !known {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		sum = hex.EncodeToString(h.Sum(nil))
		b.files[path] = sum
	}
	*parts = append(*parts, "file "+rel+" "+sum)
	return nil
}
