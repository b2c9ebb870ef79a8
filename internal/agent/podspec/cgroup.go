package podspec

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// Below a node's root the pods have one cgroup together, in which those of the classes Burstable and BestEffort have one each. Pods of the class Guaranteed
// are beside these two, so that each has its own part of the processors, as with a kubelet.
const (
	podsCgroup = "pods"
	podPrefix  = "pod"
)

// CgroupParent is the pod's cgroup below root, in the syntax of the runtime's cgroup driver.
func CgroupParent(root string, pod *v1.Pod, systemd bool) string {
	return PodCgroup(root, string(pod.UID), pods.QOS(pod), systemd)
}

// PodCgroup is the cgroup of the pod with the UID.
func PodCgroup(root, uid string, class v1.PodQOSClass, systemd bool) string {
	return cgroupName(root, systemd, append(classParts(class), podPrefix+uid)...)
}

// ClassCgroup is the cgroup of the pods of a class; of Guaranteed it is that of all pods.
func ClassCgroup(root string, class v1.PodQOSClass, systemd bool) string {
	return cgroupName(root, systemd, classParts(class)...)
}

// RootCgroup is the node's own.
func RootCgroup(root string, systemd bool) string { return cgroupName(root, systemd) }

// UIDOfCgroup is the UID of the pod whose cgroup has the name in that of its class; systemd's names have lost what tells dashes from underscores, of which
// a UID has none.
func UIDOfCgroup(name string, systemd bool) (uid string, ok bool) {
	if systemd {
		name, ok = strings.CutSuffix(name, ".slice")
		if !ok {
			return "", false
		}
		name = strings.ReplaceAll(name[strings.LastIndexByte(name, '-')+1:], "_", "-")
	}
	uid, ok = strings.CutPrefix(name, podPrefix)
	return uid, ok && uid != ""
}

func classParts(class v1.PodQOSClass) []string {
	if class == v1.PodQOSGuaranteed {
		return []string{podsCgroup}
	}
	return []string{podsCgroup, strings.ToLower(string(class))}
}

func cgroupName(root string, systemd bool, below ...string) string {
	if !systemd {
		return path.Join(append([]string{"/", root}, below...)...)
	}
	// A slice's place in the tree is in its name: "-" separates the levels, so none may be in a part.
	var parts []string
	for _, p := range append(strings.Split(strings.Trim(root, "/"), "/"), below...) {
		if p != "" {
			parts = append(parts, strings.ReplaceAll(p, "-", "_"))
		}
	}
	return strings.Join(parts, "-") + ".slice"
}
