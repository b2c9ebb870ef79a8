// Package podcgroup makes the cgroups of pods, and of the classes of pods, and says what each of them may have, whatever the runtime is that puts containers
// below:
//
//	ROOT/pods                        all pods: the weight and the memory of the node's allocatable
//	ROOT/pods/podUID                 a pod of the class Guaranteed
//	ROOT/pods/burstable              all burstable pods: the weight of what they request together
//	ROOT/pods/burstable/podUID       one of them
//	ROOT/pods/besteffort             all others: next to nothing, when processors are short
//	ROOT/pods/besteffort/podUID      one of them
//
// With a runtime whose cgroup driver is systemd they are slices of the same structure. Nothing is remembered beside them: what a pod has is found by its
// UID, and each operation can be repeated.
//
// systemd is asked with cgroup v2 only. Where it makes the cgroups on a host with v1, the runtime does without the classes, and the log says so.
package podcgroup
