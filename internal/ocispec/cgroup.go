package ocispec

import "monopod.dev/monopod/internal/host/cgroup/place"

const cgroupParentField = "linux.cgroup_parent"

// CgroupParent returns the cgroup that cgroup_parent names, as an absolute path in cgroupfs syntax, or "" for none. It takes a path of
// that syntax and, as kubelets with systemd's driver give it, the bare name of a slice.
func CgroupParent(parent string) (string, error) {
	if parent == "" {
		return "", nil
	}
	at, err := place.Path(parent)
	if err != nil {
		return "", invalid(cgroupParentField, "%w", err)
	}
	return at, nil
}

// Slice returns the slice that cgroup_parent names, and its cgroup, or "" for none. It takes the bare name, and the path of a slice, when it
// lies where its name says.
func Slice(parent string) (name, cgroup string, err error) {
	if parent == "" {
		return "", "", nil
	}
	if name, cgroup, err = place.Slice(parent); err != nil {
		return "", "", invalid(cgroupParentField, "%w", err)
	}
	return name, cgroup, nil
}
