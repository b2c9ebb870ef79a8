package machine

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// bootModules are what the machine itself needs: its disk and its ports.
var bootModules = []string{"virtio_pci", "virtio_blk", "virtio_console"}

// nodeModules are what a node needs. There is no modprobe in the machine, so everything that the kernel would have loaded
// by itself is here too.
var nodeModules = []string{"overlay", "bridge", "veth", "dummy", "nf_tables", "nft_chain_nat", "nft_masq",
	"nft_nat", "nft_ct", "nft_reject_inet", "nft_limit", "nft_fib_inet", "nft_meta_bridge", "nft_numgen",
	"nf_conntrack_netlink", "tcp_diag"}

// modules finds kernel modules and their dependencies. Debian's package has no modules.dep (depmod makes it on the
// machine), so the dependencies are read from the modules themselves.
type modules struct {
	files   map[string]string // by name
	builtin map[string]bool
}

func openModules(dir string) (*modules, error) {
	m := &modules{files: map[string]string{}, builtin: map[string]bool{}}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".ko") {
			m.files[moduleName(path)] = path
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	for path := range strings.Lines(string(raw)) {
		m.builtin[moduleName(strings.TrimSpace(path))] = true
	}
	return m, nil
}

// moduleName is a module's name by its file: the kernel takes dashes for underscores.
func moduleName(path string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(path), ".ko"), "-", "_")
}

// resolve lists the files of the named modules with all that they depend on, each after its dependencies.
func (m *modules) resolve(names ...string) ([]string, error) {
	var files []string
	done := map[string]bool{}
	var visit func(name, why string) error
	visit = func(name, why string) error {
		name = strings.ReplaceAll(name, "-", "_")
		if done[name] || m.builtin[name] {
			return nil
		}
		done[name] = true
		file, ok := m.files[name]
		if !ok {
			return fmt.Errorf("the kernel has no module %s (%s)", name, why)
		}
		deps, err := dependencies(file)
		if err != nil {
			return err
		}
		for _, d := range deps {
			if err := visit(d, "needed by "+name); err != nil {
				return err
			}
		}
		files = append(files, file)
		return nil
	}
	for _, n := range names {
		if err := visit(n, "wanted in the machine"); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// dependencies reads the field "depends" of a module's .modinfo: NUL-terminated strings, name=value.
func dependencies(file string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("%s has no section .modinfo", file)
	}
	raw, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, field := range bytes.Split(raw, []byte{0}) {
		if value, ok := strings.CutPrefix(string(field), "depends="); ok && value != "" {
			return strings.Split(value, ","), nil
		}
	}
	return nil, nil
}
