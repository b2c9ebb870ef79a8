package ocispec

import (
	"path"
	"strings"
)

// sliceSuffix ends the name of a slice, systemd's word for a cgroup that holds others.
const sliceSuffix = ".slice"

// CgroupParent returns the cgroup that cgroup_parent names, as an absolute path in cgroupfs syntax, or "" for none. It takes a path of
// that syntax and, as kubelets with systemd's driver give it, the bare name of a slice, whose dashes tell where it lies:
// a-b.slice is /a.slice/a-b.slice (systemd.slice(5)).
func CgroupParent(parent string) (string, error) {
	const field = "linux.cgroup_parent"
	switch {
	case parent == "":
		return "", nil
	case strings.HasPrefix(parent, "/"):
		clean := path.Clean(parent)
		if clean == "/" || clean != strings.TrimRight(parent, "/") || strings.ContainsAny(parent, "\x00\n") {
			return "", invalid(field, "%q is not a clean path below the root, as /pods/pod1 is", parent)
		}
		return clean, nil
	case strings.Contains(parent, "/") || !strings.HasSuffix(parent, sliceSuffix):
		return "", invalid(field, "%q is neither an absolute cgroupfs path, as /pods/pod1 is, nor the name of a slice, as pods-pod1.slice is", parent)
	}
	full, prefix := "", ""
	for part := range strings.SplitSeq(strings.TrimSuffix(parent, sliceSuffix), "-") {
		if part == "" || strings.ContainsAny(part, "\x00\n") {
			return "", invalid(field, "%q is not the name of a slice below the root one: something must stand before, between and behind the dashes", parent)
		}
		prefix += part
		full += "/" + prefix + sliceSuffix
		prefix += "-"
	}
	return full, nil
}

// Slice returns the slice that cgroup_parent names, and its cgroup, or "" for none. It takes the bare name, and the path of a slice, when it
// lies where its name says.
func Slice(parent string) (name, cgroup string, err error) {
	const field = "linux.cgroup_parent"
	cgroup, err = CgroupParent(parent)
	if err != nil || cgroup == "" {
		return "", "", err
	}
	name = path.Base(cgroup)
	if at, err := CgroupParent(name); err != nil || at != cgroup || strings.Contains(name, ":") {
		return "", "", invalid(field, "%q is not the name of a slice, as pods-pod1.slice is, which the cgroup driver systemd needs (RuntimeConfig tells the driver)", parent)
	}
	return name, cgroup, nil
}

// SliceOf is the slice, directly or not below the root one, that stands for a path in cgroupfs syntax: that of /a/b-c is a-b_c.slice.
func SliceOf(cgroup string, below ...string) string {
	var parts []string
	for part := range strings.SplitSeq(path.Join(append([]string{cgroup}, below...)...), "/") {
		if part != "" {
			parts = append(parts, strings.Map(inSlice, part))
		}
	}
	return strings.Join(parts, "-") + sliceSuffix
}

// inSlice replaces what has another meaning in the name of a slice, or none.
func inSlice(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '.':
		return r
	}
	return '_'
}
