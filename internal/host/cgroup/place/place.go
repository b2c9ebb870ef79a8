// Package place says where cgroups lie, and what they are called in the words of the cgroup driver: who makes the cgroups of a runtime. It is pure.
//
// With the driver cgroupfs a cgroup's name is its path. With systemd it is that of a slice, which tells its place by its dashes: a-b.slice is
// /a.slice/a-b.slice (systemd.slice(5)).
package place

import (
	"fmt"
	"path"
	"strings"
)

// Driver is a cgroup driver.
type Driver int

// The drivers that CRI knows (RuntimeConfigResponse).
const (
	Cgroupfs Driver = iota
	Systemd
)

// Of is the driver systemd, or else cgroupfs.
func Of(systemd bool) Driver {
	if systemd {
		return Systemd
	}
	return Cgroupfs
}

// String is the driver's name in configurations.
func (d Driver) String() string {
	if d == Systemd {
		return "systemd"
	}
	return "cgroupfs"
}

// sliceSuffix ends the name of a slice, systemd's word for a cgroup that holds others.
const sliceSuffix = ".slice"

// Name is the name of the cgroup at a path in cgroupfs syntax, with the parts below it: of /a and b-c it is /a/b-c, or a-b_c.slice.
func (d Driver) Name(root string, below ...string) string {
	at := path.Join(append([]string{"/", root}, below...)...)
	if d == Cgroupfs {
		return at
	}
	var parts []string
	for part := range strings.SplitSeq(at, "/") {
		if part != "" {
			parts = append(parts, inSlice(part))
		}
	}
	return strings.Join(parts, "-") + sliceSuffix
}

// inSlice is a part of a slice's name: what has another meaning there, or none, is an underscore.
func inSlice(part string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '.':
			return r
		}
		return '_'
	}, part)
}

// Path is the path in cgroupfs syntax of what a name of either driver names.
func Path(name string) (string, error) {
	switch {
	case strings.HasPrefix(name, "/"):
		clean := path.Clean(name)
		if clean == "/" || clean != strings.TrimRight(name, "/") || strings.ContainsAny(name, "\x00\n") {
			return "", fmt.Errorf("%q is not a clean path below the root, as /pods/pod1 is", name)
		}
		return clean, nil
	case strings.Contains(name, "/") || !strings.HasSuffix(name, sliceSuffix):
		return "", fmt.Errorf("%q is neither an absolute cgroupfs path, as /pods/pod1 is, nor the name of a slice, as pods-pod1.slice is", name)
	}
	full, prefix := "", ""
	for part := range strings.SplitSeq(strings.TrimSuffix(name, sliceSuffix), "-") {
		if part == "" || strings.ContainsAny(part, "\x00\n") {
			return "", fmt.Errorf("%q is not the name of a slice below the root one: something must stand before, between and behind the dashes", name)
		}
		prefix += part
		full += "/" + prefix + sliceSuffix
		prefix += "-"
	}
	return full, nil
}

// Slice is the slice that a name of either driver names, and its path in cgroupfs syntax. A path is that of a slice when it lies where its last part says.
func Slice(name string) (slice, at string, err error) {
	at, err = Path(name)
	if err != nil {
		return "", "", err
	}
	slice = path.Base(at)
	if of, err := Path(slice); err != nil || of != at || strings.Contains(slice, ":") {
		return "", "", fmt.Errorf("%q is not the name of a slice, as pods-pod1.slice is, which the cgroup driver systemd needs (RuntimeConfig tells the driver)", name)
	}
	return slice, at, nil
}
