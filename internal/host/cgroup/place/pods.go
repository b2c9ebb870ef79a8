package place

import "strings"

// Pods are the cgroups of a node's pods. Below the node's root the pods have one cgroup together, in which those of the classes Burstable and BestEffort have one
// each. Pods of the class Guaranteed are beside these two, so that each has its own part of the processors, as with a kubelet.
type Pods struct {
	// Root is the node's own cgroup, in cgroupfs syntax.
	Root   string
	Driver Driver
}

const (
	podsPart   = "pods"
	podPrefix  = "pod"
	guaranteed = "Guaranteed" // v1.PodQOSGuaranteed
)

// Node is the name of the node's own cgroup.
func (p Pods) Node() string { return p.Driver.Name(p.Root) }

// All is the name of that of all pods.
func (p Pods) All() string { return p.Driver.Name(p.Root, podsPart) }

// Class is the name of that of the pods of a class (v1.PodQOSClass); of Guaranteed it is that of all pods.
func (p Pods) Class(class string) string { return p.Driver.Name(p.Root, parts(class)...) }

// Pod is the name of that of the pod with the UID.
func (p Pods) Pod(uid, class string) string {
	return p.Driver.Name(p.Root, append(parts(class), podPrefix+uid)...)
}

// UID is that of the pod whose cgroup has this name in that of its class; systemd's names have lost what tells dashes from underscores, of which
// a UID has none.
func (p Pods) UID(name string) (uid string, ok bool) {
	if p.Driver == Systemd {
		name, ok = strings.CutSuffix(name, sliceSuffix)
		if !ok {
			return "", false
		}
		name = strings.ReplaceAll(name[strings.LastIndexByte(name, '-')+1:], "_", "-")
	}
	uid, ok = strings.CutPrefix(name, podPrefix)
	return uid, ok && uid != ""
}

func parts(class string) []string {
	if class == guaranteed {
		return []string{podsPart}
	}
	return []string{podsPart, strings.ToLower(class)}
}
