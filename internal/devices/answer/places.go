package answer

import (
	"fmt"
	"path/filepath"
)

// Places are the paths of a container at which there is something of the host, and who wants it there. Paths are compared as the kernel reads
// them: "/data/" is "/data". The zero value is empty.
type Places struct{ at map[string][]Thing }

// Thing is something of the host in a container: a device node or a mount.
type Thing struct {
	kind, hostPath, mode string // the mode are a node's permissions, or whether a mount is read-only
	// Of says who wants it there, in the words of whoever has added it.
	Of string
}

const (
	nodeKind  = "the device node"
	mountKind = "a mount of"
)

// String tells what of the host it is: `the device node "/dev/x" (rw)`, `a mount of "/lib" (ro)`. Of an endless path it tells the beginning.
func (t Thing) String() string { return fmt.Sprintf("%s %.256q (%s)", t.kind, t.hostPath, t.mode) }

// Clash is about two things at one path, of which a container could have only one.
type Clash struct {
	// Path is where New was to be.
	Path string
	// Old is there, New was not added.
	Old, New Thing
}

// AddNode adds a device node. known: it is there already, in the same way.
func (p *Places) AddNode(n Node, of string) (known bool, clash *Clash) {
	return p.add(n.ContainerPath, Thing{nodeKind, filepath.Clean(n.HostPath), n.Permissions, of})
}

// AddMount is AddNode for a mount. A mount of the very node of the host that is there does not clash with it: both are the same file.
func (p *Places) AddMount(m Mount, of string) (known bool, clash *Clash) {
	mode := "rw"
	if m.ReadOnly {
		mode = "ro"
	}
	return p.add(m.ContainerPath, Thing{mountKind, filepath.Clean(m.HostPath), mode, of})
}

func (p *Places) add(path string, t Thing) (known bool, clash *Clash) {
	clean := filepath.Clean(path)
	for _, o := range p.at[clean] {
		switch sameFile := o.hostPath == t.hostPath; {
		case sameFile && o.kind == t.kind && o.mode == t.mode:
			known = true
		case !sameFile || o.kind == t.kind:
			return false, &Clash{Path: path, Old: o, New: t}
		}
	}
	if !known {
		if p.at == nil {
			p.at = map[string][]Thing{}
		}
		p.at[clean] = append(p.at[clean], t)
	}
	return known, nil
}
